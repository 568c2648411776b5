"""Looks and the anchor: both are stored in the registry, so that all machines use one error budget."""

from pathlib import Path

import pytest
from test_registry_and_lineage import made

from models.base.errors import UserError
from models.evaluation.gate.gate import GateSettings
from tasks.gate.gate_split import digest_of, estimated_overlap, sketch_of
from tasks.gate.power import gate_power
from tasks.tracking import aliases, registry, tags
from tasks.tracking.looks import take_look

GATE = GateSettings()
A, B = (sketch_of(f"{name} {number}" for number in range(200)) for name in "ab")


def test_looks_at_one_split_are_counted_and_spend_one_budget(home: Path):
    looks = [take_look("policy", "aaaa", A, f"weights {night}", GATE) for night in range(3)]
    assert [look.number for look in looks] == [1, 2, 3]
    assert looks[-1].spent == pytest.approx(sum(look.alpha for look in looks))


def test_a_new_gate_split_starts_a_new_budget_and_leaves_the_old_count(home: Path):
    take_look("policy", "aaaa", A, "one", GATE)
    assert take_look("policy", "bbbb", B, "two", GATE).number == 1
    assert take_look("policy", "aaaa", A, "three", GATE).number == 2


def test_a_look_that_was_cut_off_goes_on_and_is_not_paid_twice(home: Path):
    take_look("policy", "aaaa", A, "one", GATE)
    cut_off = take_look("policy", "aaaa", A, "two", GATE)
    assert take_look("policy", "aaaa", A, "two", GATE) == cut_off
    assert take_look("policy", "aaaa", A, "three", GATE).number == 3


def looked_at(problems, compared):
    return take_look("policy", digest_of(problems), sketch_of(problems), compared, GATE)


def test_a_split_that_shares_problems_with_one_that_was_looked_at_goes_on_with_its_looks(home: Path):
    """Rows that are added every night change the digest of the split, but the count of its looks continues.

    It also continues if half of the problems are replaced.
    """
    problems = [f"problem {number}" for number in range(400)]
    nights = [looked_at(problems[: 300 + 10 * night], f"weights {night}") for night in range(4)]
    assert [look.number for look in nights] == [1, 2, 3, 4]
    assert nights[-1].spent == pytest.approx(sum(look.alpha for look in nights))
    assert len([tag for tag in registry.model_tags("policy") if tag.startswith(tags.LOOKS)]) == 1
    moved = problems[150:] + [f"other {number}" for number in range(150)]
    assert looked_at(moved, "weights 4").number == 5
    assert looked_at(problems[:300], "weights 5").number == 6  # the split of the first night again
    assert looked_at([f"new {number}" for number in range(300)], "weights 6").number == 1


def test_the_same_weights_against_another_champion_are_another_look(home: Path):
    first = take_look("policy", "aaaa", A, "one against v1", GATE)
    again = take_look("policy", "aaaa", A, "one against v2", GATE)
    assert (first.number, again.number) == (1, 2) and again.alpha < first.alpha


@pytest.mark.parametrize(
    ("kept", "added", "expected"), [(300, 0, 1.0), (300, 300, 1.0), (150, 150, 0.5), (0, 300, 0.0)]
)
def test_a_sketch_estimates_the_share_of_problems_that_two_splits_have_in_common(kept, added, expected):
    problems = [f"problem {number}" for number in range(300)]
    other = problems[:kept] + [f"other {number}" for number in range(added)]
    assert estimated_overlap(sketch_of(problems), sketch_of(other)) == pytest.approx(
        expected, abs=0.2 if 0 < expected < 1 else 0
    )


def test_the_sketches_of_small_splits_are_whole():
    assert (
        estimated_overlap(sketch_of(["a", "b"]), sketch_of(["b", "c"])) == 0.5
        and estimated_overlap(sketch_of([]), sketch_of(["a"])) == 0.0
    )


def test_counting_needs_no_version_and_does_not_hinder_the_first(home: Path, policy_folder: Path):
    take_look("policy", "aaaa", A, "one", GATE)
    assert registry.versions("policy") == []
    assert made(policy_folder, 1) == [1]


def anchor_of(name: str = "policy") -> int | None:
    anchor = registry.by_alias(name, registry.ANCHOR)
    return anchor.version if anchor else None


@pytest.mark.rotating(of=6)
def test_the_first_champion_is_the_anchor_and_stays_it(home: Path, policy_folder: Path):
    made(policy_folder, 3)
    assert anchor_of() is None
    for version in (1, 2, 3):
        aliases.promote("policy", version, why="gate")
        assert anchor_of() == 1
    aliases.rollback("policy")
    assert anchor_of() == 1


@pytest.mark.rotating(of=6)
def test_a_person_may_name_another_anchor(home: Path, policy_folder: Path):
    made(policy_folder, 2)
    aliases.promote("policy", 1)
    assert aliases.set_anchor("policy", 2).version == anchor_of() == 2
    with pytest.raises(UserError, match="no version 9"):
        aliases.set_anchor("policy", 9)


def test_the_power_of_a_gate_is_a_table_that_says_what_it_assumes(home: Path):
    from models.recipes.load import load_recipe

    said = gate_power(load_recipe("arithmetic"), 0.02)
    assert "assumed, no champion exists yet" in said
    rows = [line.split() for line in said.splitlines()[5:]]
    first, last = (int(rows[place][2].replace(",", "")) for place in (0, -1))
    assert [row[0] for row in rows] == ["1", "30", "180", "365"]
    assert 500 < first < last < 5000
    with pytest.raises(UserError, match="must lie between 0 and 1"):
        gate_power(load_recipe("arithmetic"), 2.0)


def test_a_difference_that_no_bet_can_find_needs_no_finite_number_of_problems(home: Path) -> None:
    from models.recipes.load import load_recipe

    assert gate_power(load_recipe("arithmetic"), 0.0001).splitlines()[-1].endswith(" never")

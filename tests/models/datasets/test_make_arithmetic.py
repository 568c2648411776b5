"""The built-in data set with the settings of params.yaml: disjoint splits, right labels and the set shares of flaws."""

import hashlib
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from models.base.errors import UserError
from models.datasets.arithmetic import SOUND, ArithmeticProblem, Operation, flawed, work
from models.datasets.make_arithmetic import ArithmeticSettings, draw_level, main, make, write
from models.datasets.params import checked, read_section, run_stage
from models.datasets.schema import SPLITS, Split
from models.method.problem import Reads

Made = Mapping[Reads, Mapping[Split, Sequence[Mapping[str, Any]]]]
"""Rows of each split of each kind."""
OTHERS: tuple[Split, ...] = ("train", "validation")
PARAMS = Path(__file__).resolve().parents[3] / "params.yaml"


@pytest.fixture(scope="module")
def settings() -> ArithmeticSettings:
    return checked(ArithmeticSettings, read_section(PARAMS, "arithmetic"), "arithmetic")


@pytest.fixture(scope="module")
def made(settings: ArithmeticSettings) -> Made:
    return make(settings)


def small(settings: ArithmeticSettings, **changes: Any) -> ArithmeticSettings:
    counts = {"train": (20, 40), "validation": (5, 5), "gate": (10, 10, 10)}
    rows = {"train": 200, "validation": 20}
    pairs = {"train": 60, "validation": 9}
    values = settings.model_dump() | {"problems": counts, "demonstrations": rows, "preferences": pairs} | changes
    return ArithmeticSettings.model_validate(values)


@pytest.mark.rotating(of=6)
def test_the_counts_are_those_of_the_settings(settings: ArithmeticSettings, made: Made) -> None:
    for split in SPLITS:
        assert len(made["problems"][split]) == sum(getattr(settings.problems, split))
        assert len(made["demonstrations"][split]) == settings.demonstrations.of(split)
        assert len(made["preferences"][split]) == settings.preferences.of(split)


@pytest.mark.rotating(of=6)
def test_the_splits_share_no_prompt_in_any_kind(made: Made) -> None:
    prompts = {split: {row["prompt"] for kind in made for row in made[kind][split]} for split in SPLITS}
    assert not prompts["train"] & prompts["validation"]
    assert not prompts["train"] & prompts["gate"]
    assert not prompts["validation"] & prompts["gate"]


def test_no_problem_occurs_twice(made: Made) -> None:
    prompts = [row["prompt"] for split in SPLITS for row in made["problems"][split]]
    assert len(prompts) == len(set(prompts))


def test_the_gate_has_problems_alone(made: Made) -> None:
    assert {kind: len(made[kind]["gate"]) for kind in made} == {"problems": 460, "demonstrations": 0, "preferences": 0}


@pytest.mark.rotating(of=6)
def test_another_gate_seed_makes_the_gate_anew_from_what_no_other_split_may_use(
    settings: ArithmeticSettings, made: Made
) -> None:
    other = make(settings.model_copy(update={"gate_seed": settings.gate_seed + 1}))
    for kind in made:
        assert all(other[kind][split] == made[kind][split] for split in OTHERS)
    first, two = ({row["prompt"] for row in rows["problems"]["gate"]} for rows in (made, other))
    used = {row["prompt"] for kind in made for split in OTHERS for row in made[kind][split]}
    assert len(first & two) < 150 and not two & used  # level 1 has few problems, so most of them occur in both gates


def test_the_gate_is_made_like_the_validation_split(made: Made) -> None:
    """At level 1, the shares of problems with a negative value differ by less than 0.1 between the two splits."""
    shares = {}
    for split in ("validation", "gate"):
        rows = [problem_of(row["prompt"]) for row in made["problems"][split] if row["level"] == 1]
        shares[split] = sum(min(work(problem).values) < 0 for problem in rows) / len(rows)
    assert shares["gate"] > 0 and abs(shares["gate"] - shares["validation"]) < 0.1


def test_the_hardest_level_is_in_the_held_out_splits_alone(made: Made) -> None:
    levels = {split: {row["level"] for kind in made for row in made[kind][split]} for split in SPLITS}
    assert levels == {"train": {1, 2, 3, 4}, "validation": {1, 2, 3, 4, 5}, "gate": {1, 2, 3, 4, 5}}


def test_a_sound_demonstration_ends_in_its_answer_and_a_flawed_one_does_not(
    made: Made,
) -> None:
    for row in made["demonstrations"]["train"]:
        written = row["completion"].rpartition("#### ")[2]
        assert (written == row["answer"]) == (row["flaw"] == SOUND)


def test_of_a_pair_the_chosen_is_right_and_the_rejected_wrong(made: Made) -> None:
    answers = {row["prompt"]: row["answer"] for split in SPLITS for row in made["problems"][split]}
    for split in SPLITS:
        for row in made["preferences"][split]:
            assert row["chosen"].endswith(f"#### {answers[row['prompt']]}")
            assert not row["rejected"].endswith(f"#### {answers[row['prompt']]}")


def test_no_two_pairs_are_alike(made: Made) -> None:
    for split in SPLITS:
        pairs = [(row["prompt"], row["rejected"]) for row in made["preferences"][split]]
        assert len(pairs) == len(set(pairs))


def problem_of(prompt: str) -> ArithmeticProblem:
    start, *steps = prompt.removesuffix(" .").split(" . ")
    names: dict[str, Any] = {"Add": "add", "Take": "take_away", "Double": "double"}
    numbers = [2 if step == "Double it" else int(step.split()[-1]) for step in steps]
    operations = [Operation(names[step.split()[0]], number) for step, number in zip(steps, numbers, strict=True)]
    return ArithmeticProblem(int(start.split()[-1]), tuple(operations))


def within_three_sigma(hits: int, trials: int, share: float) -> bool:
    return trials > 100 and abs(hits - trials * share) <= 3 * math.sqrt(trials * share * (1 - share)) + 1e-9


def test_flaw_shares_of_demonstrations_are_within_three_sigma_of_the_settings(
    settings: ArithmeticSettings, made: Made
) -> None:
    shares = settings.flaws.demonstrations
    rest = made["demonstrations"]["train"]
    for flaw in ("sign_lost", "operand_skipped", "slip"):
        can = [row for row in rest if flawed(problem_of(row["prompt"]), flaw, *settings.value)]
        hits = sum(row["flaw"] == flaw for row in can)
        assert within_three_sigma(hits, len(can), getattr(shares, flaw)), flaw
        rest = [row for row in rest if row["flaw"] != flaw]
    assert {row["flaw"] for row in rest} == {SOUND}


def test_flaw_shares_of_pairs_are_within_three_sigma_of_the_settings(settings: ArithmeticSettings, made: Made) -> None:
    rows = made["preferences"]["train"]
    for flaw in ("sign_lost", "operand_skipped", "slip"):
        hits = sum(row["flaw"] == flaw for row in rows)
        assert within_three_sigma(hits, len(rows), getattr(settings.flaws.preferences, flaw)), flaw


@pytest.mark.parametrize("share", [0.0, 0.25, 1.0])
def test_as_many_problems_as_asked_for_pass_below_zero_where_the_level_has_them(
    settings: ArithmeticSettings, share: float
) -> None:
    problems = draw_level(2, 40, small(settings, negative_share=share))
    assert sum(min(work(problem).values) < 0 for problem in problems) == round(40 * share)


def digests(folder: Path) -> dict[str, str]:
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in folder.iterdir()}


def test_making_twice_gives_the_same_bytes(settings: ArithmeticSettings, tmp_path: Path) -> None:
    write(small(settings), tmp_path / "one")
    write(small(settings), tmp_path / "two")
    assert digests(tmp_path / "one") == digests(tmp_path / "two")


def test_another_seed_gives_other_rows(settings: ArithmeticSettings) -> None:
    assert make(small(settings, seed=1)) != make(small(settings, seed=2))


def test_a_level_that_has_too_few_problems_is_refused(settings: ArithmeticSettings) -> None:
    with pytest.raises(UserError, match=r"500 problems of level 1 .* no more than 242"):
        make(small(settings, problems={"train": (500,), "validation": (), "gate": ()}))
    with pytest.raises(UserError, match=r"500 gate problems of level 1 .* no more than 138"):
        make(small(settings, problems={"train": (), "validation": (), "gate": (500,)}))


def test_more_pairs_than_there_are_is_refused(settings: ArithmeticSettings) -> None:
    with pytest.raises(UserError, match=r"preferences\.validation: .* too few solutions with the flaw"):
        make(small(settings, preferences={"train": 0, "validation": 900}))


def test_an_unknown_parameter_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    params = tmp_path / "params.yaml"
    params.write_text(PARAMS.read_text().replace("slip: 0.1", "slips: 0.1"))
    assert run_stage(lambda: main([str(params), str(tmp_path / "raw")])) == 1
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert "arithmetic.flaws.demonstrations.slip" in error
    assert not (tmp_path / "raw").exists()

"""The anchor after changes outside Rewardflow: it is used also without a champion, and restored after a deletion."""

from pathlib import Path

import pytest
from test_gate_promotion import NAME
from test_judged_again import night  # noqa: F401 - a fixture
from test_looks_and_anchor import anchor_of
from test_registry_and_lineage import made

from tasks.tracking import aliases, registry, store

pytestmark = pytest.mark.rotating(of=6)

POLICY = "policy"


def promoted(folder: Path, count: int) -> None:
    """Make versions 1 to `count`, and promote them one after the other."""
    made(folder, count)
    for version in range(1, count + 1):
        aliases.promote(POLICY, version, why="gate")


def delete_alias(alias: str, name: str = POLICY) -> None:
    """Delete an alias, as a person can do in MLflow's UI."""
    store.client().delete_registered_model_alias(name, alias)


def test_without_a_champion_guards_are_still_held_against_the_anchor(night):  # noqa: F811
    assert night("one").decision == "promoted"
    delete_alias(registry.CHAMPION, NAME)
    verdict = night("two").verdict
    assert verdict is not None
    checks = {check.name: check.detail for check in verdict.checks}
    assert "length_anchor" in checks and "before the first promotion" not in " ".join(checks.values())


def test_before_the_first_promotion_the_verdict_says_so(night):  # noqa: F811
    verdict = night("one").verdict
    details = [check.detail for check in verdict.checks if check.name == "anchor"]
    assert details == ["no anchor exists before the first promotion"]


def test_a_deleted_anchor_is_restored_and_said(home: Path, policy_folder: Path):
    promoted(policy_folder, 3)
    assert aliases.record_outside_changes(POLICY) == ""
    delete_alias(registry.ANCHOR)
    assert (
        aliases.record_outside_changes(POLICY)
        == "the alias anchor was deleted outside Rewardflow; version 1 has it again"
    )
    assert anchor_of() == 1 and aliases.record_outside_changes(POLICY) == ""


def test_the_anchor_that_a_person_named_is_the_one_restored(home: Path, policy_folder: Path):
    promoted(policy_folder, 3)
    aliases.set_anchor(POLICY, 2)
    delete_alias(registry.ANCHOR)
    aliases.record_outside_changes(POLICY)
    assert anchor_of() == 2


def test_an_anchor_moved_outside_holds_and_is_said_once(home: Path, policy_folder: Path):
    promoted(policy_folder, 3)
    store.client().set_registered_model_alias(POLICY, registry.ANCHOR, "2")
    assert (
        aliases.record_outside_changes(POLICY) == "version 2 was made anchor outside Rewardflow, instead of version 1"
    )
    assert anchor_of() == 2 and aliases.record_outside_changes(POLICY) == ""


def test_a_deleted_version_leaves_the_anchor_to_the_oldest_champion_left(home: Path, policy_folder: Path):
    promoted(policy_folder, 3)
    store.client().delete_model_version(POLICY, "1")
    assert aliases.record_outside_changes(POLICY).startswith(
        "version 1, the anchor, was deleted; version 2, the oldest champion left, is the anchor now"
    )
    assert anchor_of() == 2 and aliases.record_outside_changes(POLICY) == ""


def test_a_promotion_after_a_deleted_anchor_does_not_move_it_to_the_champion(home: Path, policy_folder: Path):
    promoted(policy_folder, 3)
    delete_alias(registry.ANCHOR)
    aliases.record_outside_changes(POLICY)
    aliases.promote(POLICY, 2, why="gate")
    assert anchor_of() == 1


def test_a_registry_whose_anchor_nobody_wrote_down_goes_back_to_the_first_champion(home: Path, policy_folder: Path):
    promoted(policy_folder, 3)
    there = [key for key in registry.model_tags(POLICY) if key.endswith(".anchor")]
    for key in there:
        store.client().delete_registered_model_tag(POLICY, key)
    assert aliases.record_outside_changes(POLICY) == "", "what has the alias is taken over"
    for key in there:
        store.client().delete_registered_model_tag(POLICY, key)
    delete_alias(registry.ANCHOR)
    assert "version 1, the first champion on record, has it now" in aliases.record_outside_changes(POLICY)
    assert anchor_of() == 1

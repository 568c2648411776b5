"""Weights that come again: the verdict on them is kept, unless the only reason against them no longer holds."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from nights import champion, nights
from test_gate_promotion import NAME, RECIPE, looks

from tasks.gate import approval
from tasks.steps.promote import Promotion
from tasks.tracking import aliases, registry, tags

pytestmark = pytest.mark.rotating(of=6)

WHY = "commit 6d57ac2f does not hold the data"


@pytest.fixture
def night(home: Path, policy_folder: Path, tmp_path: Path) -> Callable[..., Promotion]:
    return nights(home, policy_folder, tmp_path)


def unpinned(version: int) -> str:
    return registry.facts_of(registry.version_info(NAME, version)).get(tags.UNPINNED, "")


def test_an_unpinned_champion_that_is_pinned_later_stays_champion_and_counts_as_pinned(night):
    assert night("one", unpinned=WHY, promote_unpinned=True).decision == "promoted"
    assert unpinned(1) == WHY
    again = night("one")
    assert again.reused and again.is_champion and unpinned(1) == ""
    assert "nothing changed, version 1" in again.result.headline and looks() == 1


def test_what_was_refused_as_unpinned_is_promoted_once_that_is_allowed(night):
    refused = night("one", unpinned=WHY)
    assert refused.decision == "refused" and refused.verdict.reason == "not_pinned"
    assert night("one", unpinned=WHY).reused
    again = night("one", unpinned=WHY, promote_unpinned=True)
    assert (again.decision, again.reused, champion()) == ("promoted", False, 1)
    assert looks() == 1, "the same comparison goes on"


def test_what_was_refused_as_unpinned_is_promoted_once_it_is_pinned(night):
    night("one", unpinned=WHY)
    assert (night("one").decision, champion(), unpinned(1)) == ("promoted", 1, "")


def test_what_waited_for_approval_is_promoted_once_nobody_is_asked(night):
    assert night("one", approval=True).decision == "waiting"
    assert night("one", approval=True).reused and champion() is None
    assert (night("one").decision, champion()) == ("promoted", 1)


def test_a_worse_candidate_is_not_judged_again_because_it_is_pinned_now(night):
    night("one")
    assert night("two", right=1, before=3, unpinned=WHY).decision in ("kept", "refused")
    again = night("two", right=1, before=3)
    assert again.reused and looks() == 2 and unpinned(2) == ""


def test_a_promotion_by_hand_and_its_rollback_are_not_undone_by_an_approval_that_is_asked_no_more(night):
    night("one")
    assert night("two", approval=True).decision == "waiting"
    aliases.promote(NAME, 2)
    assert night("two").reused and champion() == 2
    aliases.rollback(NAME)
    assert night("two").reused and champion() == 1


def test_a_candidate_that_is_held_against_another_champion_spends_another_look(night):
    night("one")
    for weights in ("two", "three"):
        assert night(weights, approval=True).decision == "waiting"
    aliases.promote(NAME, 2)
    assert looks() == 3
    assert (night("three").verdict.champion, looks()) == (2, 4)


def test_a_changed_margin_continues_the_look_and_a_changed_metric_spends_another_one(night):
    night("one")
    strict = replace(RECIPE.gate, diversity_margin=0.1)
    kept = night("two", right=2, before=2, gate=strict)
    assert (kept.decision, looks()) == ("kept", 2)
    assert night("two", right=2, before=2, gate=strict).reused
    wider = night("two", right=2, before=2, gate=replace(strict, diversity_margin=0.2))
    assert not wider.reused and wider.verdict.look == kept.verdict.look and looks() == 2
    other = night("two", right=2, before=2, gate=replace(strict, metric="greedy_accuracy"))
    assert (other.reused, other.verdict.metric, looks()) == (False, "greedy_accuracy", 3)


def test_other_answers_of_the_same_weights_are_judged_again_unless_a_person_ruled(night):
    night("one")
    assert night("two", right=1, before=3).decision in ("kept", "refused")
    assert (night("two", right=4, before=1).decision, champion(), looks()) == ("promoted", 2, 3)
    assert night("three", approval=True, right=4, before=1).decision == "waiting"
    approval.reject(NAME, 3, by="ann", why="it flatters")
    assert night("three", right=3, before=1).reused and champion() == 2
    assert night("two", right=2, before=3).reused and champion() == 2

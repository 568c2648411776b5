"""The same weights come again: the verdict on them stands, unless what alone spoke against them is gone."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from prefect.logging import disable_run_logger
from test_gate_promotion import NAME, RECIPE, answers, looks, step

from flows.train import evaluate_splits, why_no_anchor
from tasks.judgement import NOT_PINNED
from tasks.registered_policy import PolicyFiles
from tasks.step import StepContext, StepResult
from tasks.steps.promote import Candidate, Promotion, PromotionSections, promote
from tasks.tracking import aliases, registry, runs, tags

pytestmark = pytest.mark.rotating(of=3)

WHY = "commit 6d57ac2f does not hold the data"


class Training(SimpleNamespace):
    """A training whose policies answer: the candidate `right` of 4 right, every other one `before`."""

    def __init__(self, folder: Path, run: str, tuned: StepResult, right: int, before: int) -> None:
        base = step(folder, run, "warm_start", "warm", model_id="m-1")
        super().__init__(warmed=base, tuned=tuned, folder=folder, run=run, right=right, before=before)

    def evaluated(self, role: str, policy: PolicyFiles, split: str = "validation") -> Any:
        return step(self.folder, self.run, role, policy.digest, answers(self.before), gate_split="aaaa")

    def evaluated_candidate(self, split: str = "validation") -> Any:
        return step(self.folder, self.run, "candidate", self.tuned.digest, answers(self.right), gate_split="aaaa")


@pytest.fixture
def night(home: Path, policy_folder: Path, tmp_path: Path):
    """One night: weights, how right they are, how right the others; evaluated and judged as the main flow does it."""

    def trained(weights: str, right: int = 3, before: int = 1, unpinned: str = "", **changes: bool) -> Promotion:
        run = runs.open_flow_run("arithmetic", "night", {tags.UNPINNED: unpinned} if unpinned else {})
        model_id = registry.log_model(run, policy_folder, "policy", "text-generation")
        tuned = step(tmp_path, run, "fine_tune", weights, model_id=model_id)
        champion = registry.champion(NAME)
        gate = evaluate_splits(Training(tmp_path, run, tuned, right, before), champion, NAME)["gate"]  # type: ignore[arg-type]
        recipe, shown = RECIPE.model_copy(update=changes), step(tmp_path, run, "shown", weights)
        with disable_run_logger():
            against = Candidate(tuned, None, gate, shown, champion, why_no_anchor(champion, NAME), unpinned)
            return promote.fn(StepContext("promote", run, PromotionSections(recipe), home, run), against)

    return trained


def champion() -> int | None:
    champion = registry.champion(NAME)
    return champion.version if champion else None


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
    assert refused.decision == "refused" and refused.reason.startswith(NOT_PINNED)
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
    assert (night("three").compared_with, looks()) == ("champion, version 2", 4)

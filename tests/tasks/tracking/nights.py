"""Scheduled runs (nights) of a recipe with given weights and accuracies, evaluated and judged as in the main flow."""

import shutil
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from prefect.logging import disable_run_logger
from test_gate_promotion import NAME, RECIPE, answers, step

from flows.train import evaluate_splits, why_no_anchor
from models.policies.folder import hash_folder
from tasks.gate.judgement import OnGate
from tasks.registered.policy import PolicyFiles
from tasks.runner.step import StepContext, StepResult
from tasks.steps.promote import Candidate, Promotion, PromotionSections, promote
from tasks.tracking import registry, runs, tags


class Training(SimpleNamespace):
    """A training with given answers: the candidate has `right` of 4 samples right, every other policy `before` of 4."""

    def __init__(self, folder: Path, run: str, tuned: StepResult, right: int, before: int) -> None:
        base = step(folder, run, "warm_start", "warm", model_id="m-1")
        super().__init__(warmed=base, tuned=tuned, folder=folder, run=run, right=right, before=before)

    def evaluated(self, role: str, policy: PolicyFiles) -> Any:
        right = self.right if role == "candidate" else self.before
        return step(self.folder, self.run, role, f"{policy.digest} {right}", answers(right), gate_split="aaaa")

    def evaluated_candidate(self) -> Any:
        return step(self.folder, self.run, "candidate", self.tuned.digest, answers(self.right), gate_split="aaaa")

    def evaluated_on_suites(self, role: str, policy: PolicyFiles) -> dict[str, StepResult]:
        return {}

    def for_verdict(self, role: str, policy: PolicyFiles) -> OnGate:
        return OnGate(self.evaluated(role, policy))


def nights(home: Path, policy_folder: Path, folder: Path) -> Callable[..., Promotion]:
    """Return a function that runs one night: it evaluates and judges a candidate as the main flow does.

    `right` and `before`: how many of 4 samples the candidate and the other policies have right.
    """

    def trained(weights: str, right: int = 3, before: int = 1, unpinned: str = "", **changes: object) -> Promotion:
        run = runs.open_flow_run("arithmetic", "night", {tags.UNPINNED: unpinned} if unpinned else {})
        made = folder / "made" / weights
        if not made.is_dir():
            shutil.copytree(policy_folder, made)
            (made / "name.txt").write_text(weights)
        model_id = registry.log_model(run, made, "policy", "text-generation")
        tuned = step(folder, run, "fine_tune", hash_folder(made), model_id=model_id)
        champion = registry.champion(NAME)
        _, gate = evaluate_splits(Training(folder, run, tuned, right, before), champion, NAME)  # type: ignore[arg-type]
        recipe, shown = RECIPE.model_copy(update=changes), step(folder, run, "shown", tuned.digest)
        with disable_run_logger():
            against = Candidate(tuned, None, gate, shown, champion, why_no_anchor(champion, NAME), unpinned)
            return promote.fn(StepContext("promote", run, PromotionSections(recipe), home, run), against)

    return trained


def champion() -> int | None:
    champion = registry.champion(NAME)
    return champion.version if champion else None

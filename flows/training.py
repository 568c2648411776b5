"""The steps of a training, from data to the policy and its evaluation: what every flow that trains calls in turn."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from prefect import get_run_logger

from flows.opening import Opened
from flows.steps import Called, call_cached, call_validation
from models.parts import SLOTS
from models.recipe.load import plain
from tasks.contents import policy_inputs
from tasks.description import UNPINNED, Step
from tasks.step import StepResult, content_key
from tasks.steps.evaluate import evaluate_policy, name_of
from tasks.steps.fine_tune import fine_tune
from tasks.steps.fit_reward_model import reward_model
from tasks.steps.prepare_data import log_data, prepare_data
from tasks.steps.warm_start import warm_start
from tasks.tracking import runs, tags
from tasks.versions import DataVersion


@dataclass
class Training:
    """A training as far as it has come: its steps by name, and how each went."""

    opened: Opened
    refresh: bool
    version: DataVersion
    validated: StepResult
    warmed: StepResult
    rewarded: StepResult | None
    tuned: StepResult | None = None
    """None where the recipe ends before reinforcement learning."""
    steps: list[Step] = field(default_factory=list)
    scores: dict[str, float] = field(default_factory=dict)
    """Metrics of the trained policy's evaluation, once it was measured."""

    def evaluated(self, role: str, folder: Path, digest: str, model_id: str, split: str = "validation") -> StepResult:
        """Measure the policy in `folder`.

        Args:
            role: base, candidate or champion.
            folder: a model folder.
            digest: hash of its weights.
            model_id: its LoggedModel.
            split: "validation", or "gate" for the verdict alone.
        """
        recipe = self.opened.recipe
        sections: dict[str, Any] = plain(recipe)
        drawn = {"split": split, **sections["evaluation"]}
        if split == "gate":  # how many of what is shown is no matter of the gate's
            drawn |= {"problems": recipe.gate.problems, "samples": recipe.gate.samples, "ks": ()}
        inputs = (
            self.validated.digest,
            digest,
            self.rewarded.digest if self.rewarded else None,
            drawn,
            sections["engine"],
            policy_inputs(sections["policy"]),
            sections["rollouts"],
            sections["gate"]["safety_patterns"],
        )
        called = call_cached(
            evaluate_policy, content_key("evaluate", *inputs), self.opened.home, self.opened.run_id, self.refresh,
            recipe=recipe, role=role, folder_of_policy=folder, model_id=model_id,
            validated=self.validated, warmed=self.warmed, rewarded=self.rewarded, split=split,
        )  # fmt: skip
        return noted(self.steps, name_of(role, split), called)

    def evaluated_candidate(self, split: str = "validation") -> StepResult:
        """Measure the policy that was trained."""
        tuned = self.tuned
        assert tuned is not None, "the recipe has a schedule"
        policy = Path(tuned.folder) / "policy"
        measured = self.evaluated("candidate", policy, tuned.digest, tuned.links["model_id"], split)
        if split == "validation":
            self.scores = measured.metrics
        return measured


def noted(steps: list[Step], show: str, called: Called) -> StepResult:
    """Write down how a step went."""
    steps.append(Step(show, called.seconds, called.reused, called.result.headline))
    return called.result


def train_policy(opened: Opened, refresh: bool = False) -> Training:
    """Data, validation, warm start, reward model and, where the recipe has a schedule, reinforcement learning."""
    recipe, home, run = opened.recipe, opened.home, opened.run_id
    sections: dict[str, Any] = plain(recipe)
    steps: list[Step] = []

    started = time.perf_counter()
    prepared, version, unchanged = prepare_data(recipe, opened.root, home, run)
    steps.append(Step("data", time.perf_counter() - started, unchanged, prepared.headline))
    runs.set_tags(run, {tags.DATA_REVISION: version.revision})
    log_data(run, version)
    unpinned = "; ".join(filter(None, (opened.code.unpinned, version.unpinned)))
    if unpinned:
        get_run_logger().warning(f"not pinned, so it cannot be reproduced: {unpinned}")
        runs.set_tags(run, {tags.UNPINNED: unpinned})
        opened.facts[UNPINNED] = unpinned

    def step(name: str, task: Any, *inputs: Any, **arguments: Any) -> StepResult:
        return noted(steps, name, call_cached(task, content_key(name, *inputs), home, run, refresh, **arguments))

    policy, engine, seed = policy_inputs(sections["policy"]), sections["engine"], recipe.seed
    validated = noted(steps, "validate", call_validation(opened, version, refresh))
    warmed = step(
        "warm_start",
        warm_start,
        validated.digest,
        policy,
        sections["warm_start"],
        seed,
        recipe=recipe,
        validated=validated,
    )
    rewarded = None
    if recipe.reward_model is not None:
        rewarded = step(
            "reward_model", reward_model, validated.digest, warmed.digest, sections["reward_model"], policy["chat"],
            policy["precision"], seed, recipe.name, recipe=recipe, validated=validated, warmed=warmed,
        )  # fmt: skip
    training = Training(opened, refresh, version, validated, warmed, rewarded, steps=steps)
    if recipe.schedule is not None:
        loop = [sections[name] for name in (*SLOTS, "truncated", "schedule", "alarm")]
        training.tuned = step(
            "fine_tune", fine_tune, validated.digest, warmed.digest, rewarded.digest if rewarded else None, policy,
            engine, loop, seed, recipe=recipe, validated=validated, warmed=warmed, rewarded=rewarded,
        )  # fmt: skip
    return training

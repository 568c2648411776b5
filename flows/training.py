"""The steps of a training, from data to the policy and its evaluation: what every flow that trains calls in turn."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from prefect import get_run_logger

from flows.going_on import GoingOn
from flows.opening import Opened
from flows.steps import call_cached, call_preparation, call_step, call_validation, context_of
from models.loop.judge import Role
from models.policy.teacher import FrozenSettings
from models.recipe.teachers import frozen_models, recipe_of
from tasks.description import UNPINNED
from tasks.fitting import FineTuneSections
from tasks.registered_policy import PolicyFiles, given_policy, made_policy
from tasks.registered_reward_model import made_reward_model
from tasks.sections import Sections
from tasks.step import StepResult
from tasks.steps.evaluate import GateSections, ShownSections, evaluate_policy
from tasks.steps.fine_tune import fine_tune
from tasks.steps.fit_reward_model import RewardModelSections, reward_model
from tasks.steps.prepare_data import log_data
from tasks.steps.warm_start import WarmStartSections, warm_start
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
    steps: list[StepResult] = field(default_factory=list)
    scores: dict[str, float] = field(default_factory=dict)
    """Metrics of the trained policy's evaluation, once it was measured."""

    def evaluated(self, role: str, policy: PolicyFiles, split: str = "validation") -> StepResult:
        """Measure a policy.

        Args:
            role: base, candidate, champion, ...: what the evaluation is called by.
            policy: what is measured.
            split: "validation", or "gate" for the verdict alone.
        """
        on_gate = split == "gate"
        sections = (GateSections if on_gate else ShownSections)(self.opened.recipe)
        name = f"{'gate' if on_gate else 'evaluate'} {role}"
        inputs = (policy, self.validated, made_reward_model(self.rewarded), self.warmed)
        result = call_step(self.opened, evaluate_policy, sections, *inputs, refresh=self.refresh, name=name)
        self.steps.append(result)
        return result

    def evaluated_candidate(self, split: str = "validation") -> StepResult:
        """Measure the policy that was trained."""
        assert self.tuned is not None, "the recipe has a schedule"
        measured = self.evaluated("candidate", made_policy(self.tuned), split)
        if split == "validation":
            self.scores = measured.metrics
        return measured


def train_policy(opened: Opened, refresh: bool = False, resume: bool | None = None) -> Training:
    """Data, validation, warm start, reward model and, where the recipe has a schedule, reinforcement learning.

    Args:
        refresh: nothing is taken from earlier steps.
        resume: whether it is refused where it cannot go on with the training of this recipe that was cut off; None: it
            is no run of the recipe by itself, and there is none to go on with.
    """
    recipe, run = opened.recipe, opened.run_id
    prepared, version = call_preparation(opened)
    runs.set_tags(run, {tags.DATA_REVISION: version.revision})
    log_data(run, version)
    served = recipe.teacher is not None and recipe.teacher.address is not None
    unknown = "nobody can say later which model stood behind teacher.address" if served else ""
    unpinned = "; ".join(filter(None, (opened.code.unpinned, version.unpinned, unknown)))
    if unpinned:
        get_run_logger().warning(f"not pinned, so it cannot be reproduced: {unpinned}")
        runs.set_tags(run, {tags.UNPINNED: unpinned})
        opened.facts[UNPINNED] = unpinned

    def step(task: Any, sections: Sections, *inputs: Any, name: str = "") -> StepResult:
        steps.append(call_step(opened, task, sections, *inputs, refresh=refresh, name=name))
        return steps[-1]

    def frozen(role: Role, settings: FrozenSettings) -> PolicyFiles:
        """A model that the policy learns from: as it lies there, or as a recipe of its own makes it."""
        if settings.path is not None:
            return given_policy(settings.path)
        maker = recipe_of(settings, recipe, role)
        warmed = step(warm_start, WarmStartSections(maker), validated, name=f"{role}: warm_start")
        if maker.schedule is None:
            return made_policy(warmed)
        rewarded = None
        if any(reward.needs_reward_model for reward in maker.rewards):
            rewarded = step(reward_model, RewardModelSections(maker), validated, warmed, name=f"{role}: reward_model")
        tuned = step(fine_tune, FineTuneSections(maker), validated, warmed, rewarded, {}, name=f"{role}: fine_tune")
        return made_policy(tuned)

    going_on = GoingOn(opened, version, resume) if resume is not None else None
    validated = call_validation(opened, version, refresh)
    steps = [prepared, validated]
    warmed = step(warm_start, WarmStartSections(recipe), validated)
    rewarded = None
    if recipe.reward_model is not None:
        rewarded = step(reward_model, RewardModelSections(recipe), validated, warmed)
    training = Training(opened, refresh, version, validated, warmed, rewarded, steps=steps)
    if recipe.schedule is not None:
        teachers = {role: frozen(role, settings) for role, settings in frozen_models(recipe).items()}
        inputs = (validated, warmed, rewarded, teachers)
        context = context_of(opened, fine_tune.name, FineTuneSections(recipe), *inputs)
        if going_on is not None:
            going_on.begin(context.folder)
        training.tuned = call_cached(fine_tune, context, *inputs, refresh=refresh)
        steps.append(training.tuned)
        if going_on is not None:
            going_on.ended()
    return training

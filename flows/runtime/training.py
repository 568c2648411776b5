"""The steps of a training, from the data to the evaluated policy, for every flow that trains."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from prefect import get_run_logger

from flows.runtime.data_steps import (
    HeldOutSet,
    call_held_out_validation,
    call_preparation,
    call_validation,
)
from flows.runtime.frozen_policies import FrozenPolicies, fit_rewards, with_named_models
from flows.runtime.opening import FlowContext
from flows.runtime.resumable_training import ResumableTraining
from flows.runtime.steps import call_cached, call_step, context_of
from flows.runtime.suite_steps import call_suites, read_suites
from models.base.sections import Sections
from models.method.learner import Role
from models.policies.folder import given_folder
from models.policies.hub import unpinned_base
from models.recipes.teachers import all_frozen, frozen_models
from tasks.compute.fitting import FineTuneSections
from tasks.data.versions import DataVersion
from tasks.gate.judgement import OnGate
from tasks.harness.suite import Suite
from tasks.pages.description import UNPINNED
from tasks.registered.policy import PolicyFiles, policy_of_step
from tasks.registered.reward_model import RewardModelFiles, made_reward_model
from tasks.runner.step import StepResult
from tasks.steps.evaluate import GateSections, ShownSections, evaluate_policy
from tasks.steps.fine_tune import fine_tune
from tasks.steps.prepare_data import log_data
from tasks.steps.report_reward import ReportSections, require_trust, reward_report
from tasks.steps.warm_start import WarmStartSections, warm_start
from tasks.tracking import registry, runs, tags


@dataclass
class TrainingProgress:
    """Results of a training's steps so far; its methods evaluate policies."""

    opened: FlowContext
    refresh: bool
    version: DataVersion
    validated: StepResult
    warmed: StepResult
    rewarded: StepResult | None
    tuned: StepResult | None = None
    """Result of the step fine_tune; None if the recipe ends before reinforcement learning."""
    held_out: dict[str, HeldOutSet] = field(default_factory=dict)
    """Name of a held-out set -> its recipe, version and validation."""
    steps: list[StepResult] = field(default_factory=list)
    scores: dict[str, float] = field(default_factory=dict)
    """Metrics of the trained policy on the validation split; empty before it is evaluated."""
    suites: Sequence[Suite] = ()
    """The recipe's evaluation suites."""
    on_suites: dict[str, dict[str, StepResult]] = field(default_factory=dict)
    """Role -> suite -> evaluation, of all policies that were evaluated on the suites."""

    @property
    def made(self) -> StepResult:
        """Result of the last training of the policy: fine_tune, or warm_start without reinforcement learning."""
        return self.tuned or self.warmed

    def evaluated(self, role: str, policy: PolicyFiles) -> StepResult:
        """Evaluate a policy on the validation split.

        Args:
            role: base, candidate, champion, ...: part of the evaluation's name.
            policy: the policy to evaluate.
        """
        rewarded = made_reward_model(self.rewarded)
        sections = ShownSections(self.opened.recipe)
        return self._measure(f"evaluate {role}", sections, policy, self.validated, rewarded)

    def evaluated_candidate(self) -> StepResult:
        """Evaluate the trained policy on the validation split."""
        assert self.tuned is not None, "the recipe has a schedule"
        result = self.evaluated("candidate", policy_of_step(self.tuned))
        self.scores = result.metrics
        return result

    def for_verdict(self, role: str, policy: PolicyFiles) -> OnGate:
        """Evaluate a policy for the gate's verdict: on the gate's problems, each held-out set and each suite."""
        rewarded = made_reward_model(self.rewarded)
        sections = GateSections(self.opened.recipe)
        return OnGate(
            self._measure(f"gate {role}", sections, policy, self.validated, rewarded),
            {
                name: self._measure(f"gate {role} on {name}", GateSections(held.recipe), policy, held.validated, None)
                for name, held in self.held_out.items()
            },
            self.evaluated_on_suites(role, policy),
        )

    def evaluated_on_suites(self, role: str, policy: PolicyFiles) -> dict[str, StepResult]:
        """Evaluate a policy on each of the recipe's suites, unless that was done before."""
        if role not in self.on_suites:
            self.on_suites[role] = call_suites(self.opened, self.suites, role, policy, self.refresh)
            self.steps.extend(self.on_suites[role].values())
        return self.on_suites[role]

    def _measure(
        self,
        name: str,
        sections: Sections,
        policy: PolicyFiles,
        validated: StepResult,
        rewarded: RewardModelFiles | None,
    ) -> StepResult:
        inputs = (policy, validated, rewarded, self.warmed)
        result = call_step(self.opened, evaluate_policy, sections, *inputs, refresh=self.refresh, name=name)
        self.steps.append(result)
        return result


def train_policy(opened: FlowContext, refresh: bool = False, resume: bool | None = None) -> TrainingProgress:
    """Run data, validation, warm start, reward model and, if the recipe has a schedule, reinforcement learning.

    Args:
        refresh: take no results of earlier steps.
        resume: whether to raise if the interrupted training of this recipe cannot be resumed; None: this training is
            not a run of the recipe itself, and has none to resume.
    """
    recipe, run = opened.recipe, opened.run_id
    suites = read_suites(opened)
    data = call_preparation(opened)
    version = data.version
    runs.set_tags(run, {tags.DATA_REVISION: version.revision})
    log_data(run, version)
    for held in data.held_out.values():
        log_data(run, held.version, held_out=True)
    if data.held_out:
        versions = (f"{name} {held.version.digest[:8]}" for name, held in data.held_out.items())
        opened.facts["held-out sets"] = ", ".join(versions)
    model_settings = {"teacher": recipe.teacher, "judge": recipe.judge}
    served_keys = [
        key for key, settings in model_settings.items() if settings is not None and settings.address is not None
    ]
    unpinned_models = [f"which model served {key}.address cannot be determined later" for key in served_keys]
    base = recipe.policy.named_base
    if base is not None and given_folder(base) is None:
        unpinned_models.append(unpinned_base(base))
    if opened.base is not None and opened.base.of_stage:
        reason = registry.facts_of(opened.base.version).get(tags.UNPINNED, "")
        unpinned_models += [f"the stage {opened.base.name} is not pinned ({reason})"] if reason else []
    frozen = FrozenPolicies(opened, all_frozen(recipe))
    unpinned = "; ".join(
        filter(
            None,
            (
                opened.code.unpinned,
                *data.unpinned,
                *frozen.unpinned,
                *unpinned_models,
            ),
        )
    )
    if unpinned:
        get_run_logger().warning(f"not pinned, so it cannot be reproduced: {unpinned}")
        runs.set_tags(run, {tags.UNPINNED: unpinned})
        opened.facts[UNPINNED] = unpinned

    def step(task: Any, sections: Sections, *inputs: Any, name: str = "") -> StepResult:
        steps.append(call_step(opened, task, sections, *inputs, refresh=refresh, name=name))
        return steps[-1]

    resumable = ResumableTraining(opened, version, resume) if resume is not None else None
    validated = call_validation(opened, data, refresh)
    held_out = call_held_out_validation(opened, data, refresh)
    steps = [data.result, validated]
    for held in held_out.values():
        steps += [held.result, held.validated]
    opened, held_out = with_named_models(opened, frozen, step, validated, held_out)
    recipe = opened.recipe
    warmed = step(warm_start, WarmStartSections(recipe), validated)
    rewarded = None
    teachers: dict[Role, PolicyFiles] = {}
    if recipe.reward_model is not None:
        if (recipe.judges_report or recipe.judges_rows) and "judge" in frozen_models(recipe):
            teachers["judge"] = frozen.policy("judge", step, validated)
        rewarded = fit_rewards(step, recipe, validated, warmed, dict(teachers))
        if recipe.reward_model.report is not None:
            policies = [("before training", policy_of_step(warmed))]
            report_inputs = (made_reward_model(rewarded), policies, (), dict(teachers))
            report = step(reward_report, ReportSections(recipe), validated, *report_inputs)
            require_trust(report)
    training = TrainingProgress(
        opened, refresh, version, validated, warmed, rewarded, held_out=held_out, steps=steps, suites=suites
    )
    if recipe.schedule is not None:
        for role in frozen_models(recipe):
            if role not in teachers:
                teachers[role] = frozen.policy(role, step, validated)
        inputs = (validated, warmed, rewarded, teachers)
        context = context_of(opened, fine_tune.name, FineTuneSections(recipe), *inputs)
        if resumable is not None:
            resumable.begin(context.folder)
        training.tuned = call_cached(fine_tune, context, *inputs, refresh=refresh)
        steps.append(training.tuned)
        if resumable is not None:
            resumable.ended()
    return training

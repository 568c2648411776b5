"""The frozen models of a run: those that parts refer to by name, teacher and judge; recipes among them run first."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from flows.runtime.data_steps import AdditionalData, HeldOutSet, prepare_additional_data
from flows.runtime.opening import FlowContext
from flows.runtime.steps import call_step
from models.method.learner import Role
from models.policies.teacher import FrozenSettings
from models.recipes.named_models import with_folders
from models.recipes.schema import Recipe
from models.recipes.teachers import named_models, recipe_of
from tasks.compute.fitting import FineTuneSections
from tasks.registered.policy import PolicyFiles, given_policy, policy_of_step
from tasks.runner.step import StepResult
from tasks.steps.fine_tune import fine_tune
from tasks.steps.fit_process_model import process_model
from tasks.steps.fit_reward_model import RewardModelSections, reward_model
from tasks.steps.label_pairs import JurySections, label_pairs
from tasks.steps.label_steps import LabelSections, label_steps
from tasks.steps.prepare_data import log_data
from tasks.steps.validate_data import ValidationSections, validate_data
from tasks.steps.warm_start import WarmStartSections, warm_start
from tasks.tracking import registry, runs, tags

Step = Callable[..., StepResult]
"""Call of a step: task, sections, inputs, and `name`; the result is added to the run's steps."""


class FrozenPolicies:
    """The models that a run makes or takes, and does not train, by role or by key."""

    def __init__(self, opened: FlowContext, settings: Mapping[str, FrozenSettings]) -> None:
        """Load the recipes of the models, and prepare the data that these do not share with the run's recipe.

        Args:
            opened: the flow.
            settings: settings of each model, by role (`frozen_models`) or by key (`named_models`).
        """
        self._settings = settings
        self._makers = {
            role: recipe_of(frozen, opened.recipe, role) for role, frozen in settings.items() if frozen.recipe
        }
        self._data: dict[str, AdditionalData] = {
            role: prepare_additional_data(opened, maker, role)
            for role, maker in self._makers.items()
            if maker.data != opened.recipe.data
        }
        for prepared in self._data.values():
            log_data(opened.run_id, prepared.version)

    @property
    def unpinned(self) -> list[str]:
        """Reason why no commit pins the data of a model, for all models with data of their own; empty if one does."""
        return [prepared.version.unpinned for prepared in self._data.values()]

    def policy(self, role: str, step: Step, validated: StepResult) -> PolicyFiles:
        """Return a model: the given files, or the policy of its recipe, which is made now.

        Args:
            role: role or key of the model.
            step: calls a step.
            validated: the run's own data, for a recipe that shares them.
        """
        settings = self._settings[role]
        if settings.path is not None:
            return given_policy(settings.path)
        maker, rows = self._makers[role], validated
        if role in self._data:
            rows = step(
                validate_data, ValidationSections(maker), self._data[role].version, name=f"{role}: validate_data"
            )
        warmed = step(warm_start, WarmStartSections(maker), rows, name=f"{role}: warm_start")
        if maker.schedule is None:
            return policy_of_step(warmed)
        rewarded = None
        if any(reward.needs_reward_model for reward in maker.rewards):
            rewarded = fit_rewards(step, maker, rows, warmed, {}, f"{role}: ")
        tuned = step(fine_tune, FineTuneSections(maker), rows, warmed, rewarded, {}, name=f"{role}: fine_tune")
        return policy_of_step(tuned)


def fit_rewards(
    step: Step,
    maker: Recipe,
    rows: StepResult,
    warmed: StepResult,
    judges: Mapping[Role, PolicyFiles],
    of: str = "",
) -> StepResult:
    """Make the reward model of a recipe, for completions or for steps; a judge may give its pairs or labels.

    Args:
        step: calls a step.
        maker: the recipe.
        rows: its validated data.
        warmed: its warm start.
        judges: its judge, if there is one.
        of: beginning of the steps' names, for a frozen model.
    """
    assert maker.reward_model is not None
    sections = RewardModelSections(maker)
    inputs: tuple[StepResult, ...] = (rows, warmed)
    if maker.reward_model.pairs is not None:
        inputs += (step(label_pairs, JurySections(maker), *inputs, judges, name=of and f"{of}label_pairs"),)
    if maker.reward_model.process is None:
        return step(reward_model, sections, *inputs, name=of and f"{of}reward_model")
    labels = step(label_steps, LabelSections(maker), *inputs, judges, name=of and f"{of}label_steps")
    return step(process_model, sections, *inputs, labels, name=of and f"{of}process_model")


def with_named_models(
    opened: FlowContext,
    frozen: FrozenPolicies,
    step: Step,
    validated: StepResult,
    held_out: Mapping[str, HeldOutSet],
) -> tuple[FlowContext, dict[str, HeldOutSet]]:
    """Make the models that parts of the recipe refer to by name.

    Args:
        opened: the flow.
        frozen: has these models.
        step: calls a step.
        validated: the run's own data.
        held_out: the held-out sets, whose recipes have the same parts.

    Returns:
        The flow and the held-out sets with recipes whose parts name folders.
    """
    files = {key: frozen.policy(key, step, validated) for key in named_models(opened.recipe)}
    if not files:
        return opened, dict(held_out)
    registry.log_model_inputs(opened.run_id, (made.model_id for made in files.values()))
    runs.set_tags(
        opened.run_id,
        {tags.MODELS: " ".join(f"{key.removeprefix('models.')}={made.digest}" for key, made in files.items())},
    )
    folders = {key.removeprefix("models."): made.folder.absolute() for key, made in files.items()}
    sets = {name: replace(held, recipe=with_folders(held.recipe, folders)) for name, held in held_out.items()}
    return replace(opened, recipe=with_folders(opened.recipe, folders)), sets


def evaluated_with_models(
    opened: FlowContext, validated: StepResult, held_out: Mapping[str, HeldOutSet] | None = None
) -> tuple[FlowContext, dict[str, HeldOutSet], list[StepResult]]:
    """Make the models by name for a flow that evaluates policies and trains none.

    Returns:
        The flow and the held-out sets with recipes whose parts name folders, and the results of the steps.
    """
    steps: list[StepResult] = []

    def step(task: object, sections: object, *inputs: object, name: str = "") -> StepResult:
        steps.append(call_step(opened, task, sections, *inputs, name=name))  # type: ignore[arg-type]
        return steps[-1]

    frozen = FrozenPolicies(opened, named_models(opened.recipe))
    return *with_named_models(opened, frozen, step, validated, held_out or {}), steps

"""Inputs of flows that evaluate one policy on the problems of a recipe: data, reward model and frozen models."""

from __future__ import annotations

from flows.runtime.data_steps import call_preparation, call_validation
from flows.runtime.frozen_policies import evaluated_with_models
from flows.runtime.opening import FlowContext
from tasks.registered.policy import PolicyFiles
from tasks.registered.reward_model import RewardModelFiles, reward_model_of
from tasks.runner.step import StepResult
from tasks.steps.prepare_data import log_data
from tasks.tracking.registry import VersionInfo


def prepare_evaluation(
    opened: FlowContext, policy: PolicyFiles, version: VersionInfo | None
) -> tuple[FlowContext, tuple[PolicyFiles, StepResult, RewardModelFiles | None]]:
    """Prepare and validate the data of an evaluation, and make the frozen models that the recipe names.

    Args:
        opened: the flow.
        policy: the policy to evaluate.
        version: its registered version, whose reward model scores the completions; None for a model folder.

    Returns:
        The flow with a recipe whose parts name folders; and the inputs of the evaluation: the policy, the validated
        data and the reward model.
    """
    data = call_preparation(opened)
    log_data(opened.run_id, data.version, "measured on")
    rewarded = reward_model_of(version, opened.recipe)[1] if version is not None else None
    validated = call_validation(opened, data)
    with_models, _, _ = evaluated_with_models(opened, validated)
    return with_models, (policy, validated, rewarded)

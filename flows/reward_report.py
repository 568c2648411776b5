"""The flow that tests a reward model, to show in which directions it would push a policy that is trained on it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from prefect import flow

from flows.runtime.data_steps import call_preparation, call_validation
from flows.runtime.opening import open_flow
from flows.runtime.parameters import Overrides
from flows.runtime.steps import call_step
from models.base.errors import UserError
from tasks.compute.shared_engine import shared_engine
from tasks.registered.policy import given_policy, named_policy
from tasks.registered.reward_model import registered_reward_model
from tasks.runner.step import StepResult
from tasks.steps.prepare_data import log_data
from tasks.steps.report_reward import ReportSections
from tasks.steps.report_reward import reward_report as report
from tasks.tracking import records, runs


@dataclass(frozen=True)
class Reported:
    """The report on a reward model, and the id of the flow's MLflow run."""

    run: str
    result: StepResult


@flow(name="reward report", flow_run_name="report on {model}")
def reward_report(
    model: str, policies: Sequence[str], others: Sequence[str], recipe: str, overrides: Overrides = None
) -> Reported:
    """Measure a reward model on held-out pairs and on completions of policies to the problems of a recipe.

    Args:
        model: NAME/VERSION of a registered reward model.
        policies: NAME/VERSION or a model folder each; the first is the policy that is to be trained.
        others: other reward models, NAME/VERSION each.
        recipe: path or name of a recipe.
        overrides: `key.path=value` each.

    Raises:
        UserError: the model, a policy or the recipe does not exist.
    """
    with open_flow("reward report", recipe, overrides or []) as opened:
        rewarded = registered_reward_model(model)
        named = [(name, named_policy(name)[0]) for name in policies]
        other_models = [(name, registered_reward_model(name)) for name in others]
        data = call_preparation(opened)
        log_data(opened.run_id, data.version, "measured on")
        validated = call_validation(opened, data)
        judge = opened.recipe.judge if opened.recipe.judges_report else None
        if judge is not None and judge.recipe is not None:
            raise UserError("judge.recipe: a report makes no judge; give judge.path or judge.address, or judged: 0")
        judges = {"judge": given_policy(judge.path)} if judge is not None and judge.path is not None else {}
        with shared_engine(opened.recipe.placement):
            sections = ReportSections(opened.recipe)
            made = call_step(opened, report, sections, validated, rewarded, named, other_models, judges)
        records.log_metrics(opened.run_id, made.metrics)
        runs.rename(opened.run_id, f"report on {model}: {made.headline}")
        records.describe(opened.run_id, f"## Report on {model}\n\n{made.headline}.\n\nAll of it: run {made.run_id}.\n")
        return Reported(opened.run_id, made)

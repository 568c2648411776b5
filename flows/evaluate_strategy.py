"""The flow that evaluates a policy with and without an evaluation strategy."""

from __future__ import annotations

from dataclasses import dataclass

from prefect import flow

from flows.runtime.evaluation_inputs import prepare_evaluation
from flows.runtime.opening import open_flow
from flows.runtime.parameters import Overrides
from flows.runtime.steps import call_step
from models.recipes.strategy import read_strategy
from tasks.compute.shared_engine import shared_engine
from tasks.registered.policy import named_policy
from tasks.runner.step import StepResult
from tasks.steps.evaluate import ShownSections, evaluate_policy
from tasks.steps.evaluate_strategy import evaluate_strategy as evaluate_with
from tasks.tracking import records, runs, tags


@dataclass(frozen=True)
class StrategyComparison:
    """Results of the evaluations with and without the strategy, and the id of the flow's MLflow run."""

    run: str
    plain: StepResult
    strategy: StepResult


@flow(name="evaluate strategy", flow_run_name="evaluate {policy} with {strategy}")
def evaluate_strategy(policy: str, strategy: str, recipe: str, overrides: Overrides = None) -> StrategyComparison:
    """Evaluate a policy with and without a strategy, on the problems and in the episodes of a recipe.

    Args:
        policy: NAME/VERSION of a registered model, or a model folder.
        strategy: name of a part of the slot `strategy`.
        recipe: path or name of a recipe.
        overrides: `key.path=value` each; those below `strategy.` are the strategy's settings.

    Raises:
        UserError: the policy, strategy or recipe does not exist, or they do not fit together.
    """
    chosen, own = read_strategy(strategy, overrides or [])
    with open_flow("evaluate", recipe, own) as opened:
        files, version = named_policy(policy)
        partners = [named_policy(named)[0] for named in chosen.partners]
        opened, inputs = prepare_evaluation(opened, files, version)
        sections = ShownSections(opened.recipe)
        with shared_engine(opened.recipe.placement):
            plain = call_step(opened, evaluate_policy, sections, *inputs, name="evaluate plain")
            made = call_step(
                opened, evaluate_with, sections, *inputs, plain, chosen, partners, name=f"evaluate {strategy}"
            )
        records.log_metrics(opened.run_id, made.metrics)
        runs.set_tags(opened.run_id, {tags.STRATEGY: strategy})
        runs.rename(opened.run_id, f"{policy} with {strategy}: {made.headline}")
        records.describe(
            opened.run_id,
            f"## {policy}, with the strategy {strategy}\n\nWith it {made.headline}.\n\nAlone {plain.headline}.\n",
        )
        return StrategyComparison(opened.run_id, plain, made)

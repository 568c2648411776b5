"""The flow that evaluates a policy with several strategies at several budgets, and chooses among them by difficulty."""

from __future__ import annotations

from pathlib import Path

from prefect import flow

from flows.runtime.evaluation_inputs import prepare_evaluation
from flows.runtime.opening import open_flow
from flows.runtime.parameters import Overrides
from flows.runtime.steps import call_step
from models.evaluation.metrics import prompt_values
from models.evaluation.records import aligned
from models.evaluation.sweep import CellResult, choose, difficulties
from models.evaluation.table import read_records
from models.recipes.sweep import read_sweep
from tasks.compute.shared_engine import shared_engine
from tasks.pages.sweep_page import Sweep, write_sweep
from tasks.registered.policy import named_policy
from tasks.runner.step import StepResult
from tasks.steps.evaluate import ShownSections, evaluate_policy
from tasks.steps.evaluate_strategy import evaluate_strategy as evaluate_with


@flow(name="evaluate sweep", flow_run_name="evaluate {policy} in a sweep")
def evaluate_sweep(policy: str, recipe: str, overrides: Overrides = None) -> tuple[str, Sweep]:
    """Evaluate a policy with each cell of a sweep: a strategy with a scorer at a budget.

    Each cell is a step with a result of its own, so that a sweep that was interrupted continues with the cells that are
    missing. Returns the flow's MLflow run and the results.

    Args:
        policy: NAME/VERSION of a registered model, or a model folder.
        recipe: path or name of a recipe.
        overrides: `key.path=value` each; those below `sweep.` are the sweep's settings.

    Raises:
        UserError: the policy or recipe does not exist, or a strategy or scorer does not fit to them.
    """
    settings, own = read_sweep(overrides or [])
    cells = settings.cells()
    with open_flow("evaluate", recipe, own) as opened:
        files, version = named_policy(policy)
        opened, inputs = prepare_evaluation(opened, files, version)
        sections, others = ShownSections(opened.recipe), ShownSections(opened.recipe)
        others.evaluation_seed = sections.evaluation_seed + 1  # the difficulty must not depend on the cells' answers
        with shared_engine(opened.recipe.placement):
            alone = call_step(opened, evaluate_policy, sections, *inputs, name="evaluate alone")
            measured = call_step(opened, evaluate_policy, others, *inputs, name="evaluate difficulty")
            steps = [
                call_step(opened, evaluate_with, sections, *inputs, alone, strategy, [], name=f"evaluate {cell.label}")
                for cell, strategy in cells
            ]
        own_records = read_records(_records_of(measured))
        by = settings.difficulty
        if by == "auto":
            by = "level" if any(record.level for record in own_records) else "accuracy"
        bins, ids = difficulties(own_records, by), [record.id for record in own_records]
        results = []
        for (cell, _), step in zip(cells, steps, strict=True):
            _, records = aligned(own_records, read_records(_records_of(step)))
            turns = max(1.0, step.metrics["strategy/turns"])
            results.append(
                CellResult(
                    cell,
                    prompt_values(records, "sampled_accuracy"),
                    step.metrics["strategy/tokens_written"] / turns,
                    step.metrics["strategy/tokens_scored"] / turns,
                    step.metrics["strategy/seconds"] / turns,
                )
            )
        choices = tuple(choose(results, bins, ids, budget) for budget in settings.budgets)
        sweep = Sweep(tuple(results), tuple(bins), choices)
        write_sweep(opened.run_id, sweep, policy)
        return opened.run_id, sweep


def _records_of(step: StepResult) -> Path:
    return Path(step.folder) / "records.parquet"

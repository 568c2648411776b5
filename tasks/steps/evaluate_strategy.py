"""Evaluation of one policy with an evaluation strategy, compared with its plain answers to the same problems."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from prefect import get_run_logger, task

from models.agents.strategy import Strategy
from models.evaluation.cross_play import CrossPlay, cross_play, payoffs
from models.evaluation.gate.paired_change import metric_changes
from models.evaluation.metrics import prompt_values
from models.evaluation.records import aligned
from models.evaluation.report import summarise
from models.evaluation.table import read_records, write_records
from models.policies.folder import check_model_folder, hash_folder
from tasks.compute.measuring import answers, as_measured
from tasks.compute.run_tokens import RunTokens
from tasks.compute.shared_engine import engine_place
from tasks.data.inputs import log_rows
from tasks.pages.cost import Cost
from tasks.registered.policy import PolicyFiles
from tasks.registered.reward_model import RewardModelFiles
from tasks.runner.caching import cached_by_key
from tasks.runner.step import StepContext, StepOutput, StepResult, run_step
from tasks.steps.evaluate import ShownSections
from tasks.steps.validate_data import clean_folder
from tasks.tracking import records, registry

COMPARED = ("sampled_accuracy", "greedy_accuracy", "tokens", "finished_share")
"""Metrics whose difference from those of the policy's plain answers is logged, paired over the problems."""


@task(name="evaluate_strategy", **cached_by_key)
def evaluate_strategy(
    context: StepContext[ShownSections],
    policy: PolicyFiles,
    validated: StepResult,
    rewarded: RewardModelFiles | None,
    plain: StepResult,
    strategy: Strategy,
    partners: Sequence[PolicyFiles],
) -> StepResult:
    """Evaluate a policy on the validation split, with each of its turns made by `strategy`.

    Greedy and sampled completions are verified, scored and written to `records.parquet`. Metrics, their difference to
    those of the plain policy and the cost are logged. With each of the strategy's partners, the payoffs with the
    strategy and without it are logged as the table `cross_play.json`.

    Args:
        context: the step's.
        policy: the policy to measure.
        validated: the data.
        rewarded: scores the answers.
        plain: the evaluation of the same policy without a strategy.
        strategy: makes the turns.
        partners: models of `strategy.partners`.
    """
    recipe = context.recipe

    def work(folder: Path, run_id: str) -> StepOutput:
        check_model_folder(policy.folder)
        data = clean_folder(validated)
        tokens = RunTokens.read(policy.folder, None, recipe)
        problems = as_measured(tokens.problems(data, "validation", recipe, recipe.problems), recipe, tokens.own)
        rows = [(problem.id, problem.prompt, problem.answer) for problem in problems]
        used = log_rows(run_id, recipe.data_name, "problems", "validation", rows, data, "evaluation")
        registry.log_model_inputs(run_id, [policy.model_id])
        made, spent = answers(context.name, context.home, policy, recipe, tokens, problems, rewarded, strategy)
        write_records(made, folder / "records.parquet")
        records.log_artifact(run_id, folder / "records.parquet", "evaluation")
        own, alone = aligned(made, read_records(Path(plain.folder) / "records.parquet"))
        metrics = summarise(own, ks=recipe.ks, safety_patterns=recipe.safety_patterns) | spent.metrics()
        changes = metric_changes(COMPARED, alone, own, list(zip(alone, own, strict=True)))
        for change in changes:
            metrics[f"gain/{change.name}"] = change.change.estimate
            metrics[f"gain/{change.name}_low"] = change.change.low
            metrics[f"gain/{change.name}_high"] = change.change.high
        if partners:
            engine_of = dict(zip(strategy.partners, partners, strict=True))

            def play(player: str, partner: str) -> list[float]:
                made_by = strategy if player == strategy.name else None
                made, _ = answers(
                    context.name, context.home, policy, recipe, tokens, problems, None, made_by, engine_of[partner]
                )
                return payoffs(made)

            matrix = cross_play(("alone", strategy.name), strategy.partners, play)
            records.log_table(run_id, "cross_play.json", _rows(matrix))
            metrics |= {
                f"cross_play/{player}": float(row.mean())
                for player, row in zip(matrix.players, matrix.matrix, strict=True)
            }
        gained = changes[0].change
        headline = (
            f"sampled {prompt_values(own, 'sampled_accuracy').mean():.1%}, {gained:+.1%} "
            f"compared with plain, {metrics['strategy/calls_a_turn']:.1f} calls a turn"
        )
        get_run_logger().info(f"{context.name}: {headline}")
        measured = records.MeasurementContext(policy.model_id, *used) if policy.model_id else None
        drawn = Cost(tokens_sampled=spent.written)
        return StepOutput(hash_folder(folder), headline, metrics, {"model_id": policy.model_id}, measured, drawn)

    with engine_place():
        return run_step(context, work)


def _rows(matrix: CrossPlay) -> list[dict[str, object]]:
    """Return the cells of a matrix with their intervals, a row each."""
    cells = [(player, partner) for player in matrix.players for partner in matrix.partners]
    return [
        {"player": player, "partner": partner, "payoff": cell.estimate, "low": cell.low, "high": cell.high}
        for player, partner in cells
        for cell in [matrix.interval(player, partner)]
    ]

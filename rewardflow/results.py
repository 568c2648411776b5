"""Results of the Python functions, as plain data; `to_frame` gives each as a pandas table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pandas import DataFrame

    from flows.evaluate_strategy import StrategyComparison
    from flows.train import TrainFlowResult
    from models.evaluation.aggregate import Standing
    from tasks.pages.comparison import TrainingCost
    from tasks.runner.step import StepResult


@dataclass(frozen=True)
class Step:
    """One step of a run."""

    name: str
    seconds: float
    """Wall time, seconds; of a reused result, the time that reusing it took."""
    reused: bool
    headline: str
    """The main numbers in one line."""
    metrics: Mapping[str, float]
    run_id: str
    """MLflow run of the step."""


@dataclass(frozen=True)
class Difference:
    """A difference with its interval."""

    metric: str
    mean: float
    low: float
    high: float
    confidence: float


@dataclass(frozen=True)
class RunOutcome:
    """Outcome of `rewardflow.run`."""

    run_id: str
    """MLflow run of the flow."""
    steps: Sequence[Step]
    model: str
    """Name of the registered model."""
    version: int | None
    """Version that was registered; None if the recipe ends before reinforcement learning."""
    decision: str | None
    """The gate's decision: promoted, kept, refused or waiting."""
    reason: str
    """The reason of the decision in one sentence."""
    difference: Difference | None
    """Candidate minus the policy that it was compared with; None without a comparison."""
    is_champion: bool
    collapsed: str
    """Why the policy did not learn, in one sentence; empty if it did."""
    unpinned: str
    """Why no commit contains the code and the data of the run; empty if one does."""

    @property
    def metrics(self) -> dict[str, float]:
        """The metrics of the candidate's evaluation; of an earlier step if the recipe ends there."""
        for name in ("evaluate candidate", *(step.name for step in reversed(self.steps))):
            for step in self.steps:
                if step.name == name and step.metrics:
                    return dict(step.metrics)
        return {}

    def to_frame(self) -> DataFrame:
        """Return the steps as a table, a row each, with a column for every metric."""
        return _frame([asdict(step) | dict(step.metrics) for step in self.steps], drop="metrics")


@dataclass(frozen=True)
class ComparisonOutcome:
    """Outcome of `rewardflow.compare`: a row for every recipe, the baseline first."""

    run_id: str
    metric: str
    standings: Sequence[Standing]
    costs: Sequence[TrainingCost]
    lost: Sequence[str]
    """One line for each training whose policy did not learn."""

    def to_frame(self) -> DataFrame:
        """Return a row for every recipe: interquartile mean, probability of improvement, intervals, cost."""
        rows = []
        for standing, cost in zip(self.standings, self.costs, strict=True):
            row: dict[str, Any] = {"recipe": standing.method, "scores": list(standing.scores)}
            for name, interval in (("interquartile_mean", standing.middle), ("improvement", standing.improvement)):
                row |= {name: None} if interval is None else {
                    name: interval.estimate, f"{name}_low": interval.low, f"{name}_high": interval.high,
                }  # fmt: skip
            rows.append(row | asdict(cost))
        return _frame(rows)


@dataclass(frozen=True)
class StrategyOutcome:
    """Outcome of `rewardflow.evaluate`: a policy's evaluation without and with a strategy."""

    run_id: str
    plain: Step
    strategy: Step

    def to_frame(self) -> DataFrame:
        """Return the metrics of both evaluations, a row each."""
        return _frame([{"evaluation": step.name, **step.metrics} for step in (self.plain, self.strategy)])


def step_of(result: StepResult) -> Step:
    """Return the public part of a step's result."""
    return Step(result.name, result.seconds, result.reused, result.headline, dict(result.metrics), result.run_id)


def run_outcome(result: TrainFlowResult) -> RunOutcome:
    """Return the public part of a training flow's result."""
    promotion = result.promotion
    verdict = promotion.verdict if promotion is not None else None
    difference = None
    if verdict is not None and verdict.difference is not None:
        interval = verdict.difference
        difference = Difference(verdict.metric, interval.estimate, interval.low, interval.high, verdict.confidence)
    return RunOutcome(
        run_id=result.run_id,
        steps=[step_of(step) for step in result.steps],
        model=result.model,
        version=promotion.version if promotion is not None else None,
        decision=str(promotion.decision) if promotion is not None else None,
        reason=promotion.reason if promotion is not None else "",
        difference=difference,
        is_champion=promotion is not None and promotion.is_champion,
        collapsed=result.collapsed,
        unpinned=result.unpinned,
    )


def strategy_outcome(result: StrategyComparison) -> StrategyOutcome:
    """Return the public part of the result of an evaluation with a strategy."""
    return StrategyOutcome(result.run, step_of(result.plain), step_of(result.strategy))


def _frame(rows: Sequence[Mapping[str, Any]], drop: str = "") -> DataFrame:
    import pandas

    return pandas.DataFrame([{key: value for key, value in row.items() if key != drop} for row in rows])

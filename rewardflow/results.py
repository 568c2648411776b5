"""Results of the Python functions, as plain data; `to_frame` gives each as a pandas table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from pandas import DataFrame

    from flows.evaluate_strategy import StrategyComparison
    from flows.train import TrainFlowResult
    from models.evaluation.aggregate import Standing
    from models.evaluation.bootstrap import Interval
    from tasks.judging.verdict import Judgement
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


@dataclass(frozen=True)
class Guard:
    """A check of `rewardflow.judge`."""

    name: str
    state: Literal["passed", "failed", "not_applicable"]
    detail: str
    """The measured value and its bound, in one line."""


@dataclass(frozen=True)
class JudgedMetric:
    """A metric of both models, as means over the problems, and their paired difference."""

    name: str
    champion: float
    candidate: float
    difference: Difference


@dataclass(frozen=True)
class JudgeOutcome:
    """Outcome of `rewardflow.judge`."""

    decision: Literal["better", "not_shown", "refused"]
    """better: shown to be better, and every guard holds; not_shown: not shown, and every guard holds; refused: a guard
    failed, whether or not the candidate is better."""
    reason: str
    """The decision with its reason in one sentence."""
    difference: Difference
    """Candidate minus champion in the primary metric, paired over problems."""
    better: Guard
    """The test of the primary metric."""
    guards: Sequence[Guard]
    metrics: Sequence[JudgedMetric]
    """The primary metric first."""
    problems: int
    detectable: float
    """Smallest true difference that would have been found with 80 % power at this look; infinite if none."""
    needed: Mapping[float, int | None]
    """True difference -> problems with which it is found with 80 % power; None: no number suffices."""
    look: int
    """Number of this look at the problems, from 1."""
    alpha: float
    """Error probability that this look may spend."""
    position_bias: Difference | None
    """Share of preferences for the answer shown first, with its interval: 0.5 without bias; None if no
    answers were compared, or no order is known."""
    notes: Sequence[str]
    run_id: str
    """MLflow run; empty if the result was not recorded."""

    @property
    def failed(self) -> list[str]:
        """Names of the guards that failed."""
        return [guard.name for guard in self.guards if guard.state == "failed"]

    def to_frame(self) -> DataFrame:
        """Return the metrics as a table, a row each: both models, the difference and its interval."""
        return _frame(
            [
                {
                    "metric": line.name, "champion": line.champion, "candidate": line.candidate,
                    "difference": line.difference.mean, "low": line.difference.low, "high": line.difference.high,
                }
                for line in self.metrics
            ]
        )  # fmt: skip


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


def judge_outcome(judgement: Judgement, run: str) -> JudgeOutcome:
    """Return the public part of a judgement."""
    from tasks.judging.report import headline, notes

    verdict, confidence = judgement.verdict, judgement.settings.gate.confidence
    better, *guards = [Guard(check.name, check.state, check.detail) for check in verdict.checks]
    facts = judgement.measured.preferences
    bias = None if facts is None else facts.first_place
    return JudgeOutcome(
        decision=judgement.decision,
        reason=headline(judgement),
        difference=_difference(judgement.metric, verdict.difference, confidence),
        better=better,
        guards=guards,
        metrics=[
            JudgedMetric(
                line.name,
                line.champion.estimate,
                line.candidate.estimate,
                _difference(line.name, line.difference, confidence),
            )
            for line in judgement.metrics
        ],
        problems=judgement.problems,
        detectable=verdict.detectable,
        needed=dict(judgement.needed),
        look=verdict.look.number,
        alpha=verdict.look.alpha,
        position_bias=None if bias is None else _difference("first_place", bias, 0.95),
        notes=notes(judgement),
        run_id=run,
    )


def _difference(metric: str, interval: Interval, confidence: float) -> Difference:
    return Difference(metric, interval.estimate, interval.low, interval.high, confidence)


def _frame(rows: Sequence[Mapping[str, Any]], drop: str = "") -> DataFrame:
    import pandas

    return pandas.DataFrame([{key: value for key, value in row.items() if key != drop} for row in rows])

"""The gate: a candidate replaces a baseline only when it is shown to be better and nothing else broke.

    better:  the paired bootstrap interval of the metric's difference lies above zero
    guards:  each holds a number of the candidate against the baseline's and fails past its margin, not at it

Every guard that is asked for is computed and reported, also after one has failed. A number that is not defined
(no reward model, nothing wrong to compare with) fails no guard and says so: the metric itself judges such a model.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from models.bounds import Seed
from models.errors import UserError
from models.evaluation.bootstrap import Interval, paired_bootstrap
from models.evaluation.metrics import (
    average,
    compiled_patterns,
    flagged_share,
    known_metric,
    prompt_values,
    reward_divergence,
    reward_gap,
    samples_needed,
)
from models.evaluation.records import PromptRecord, aligned

_ROUNDING = 1e-9
"""A worsening equal to its margin holds in spite of the rounding of its computation."""


@dataclass(frozen=True, kw_only=True)
class GateSettings:
    """What a candidate must show. Stands under `gate:`. A guard whose margin is null is not asked for."""

    __pydantic_config__ = {  # noqa: RUF012 - read by the recipe's validation, no field
        "extra": "forbid",
        "allow_inf_nan": False,
    }

    metric: str = "sampled_accuracy"
    """Any metric of a prompt: sampled_accuracy, greedy_accuracy, pass_at_4, maj_at_16, level_3_accuracy..."""
    problems: int = 460
    """Problems of the gate split, evenly spaced over it; the same for every model."""
    samples: int = 16
    """Completions of each, drawn as in the evaluation."""
    confidence: float = 0.95
    resamples: int = 10_000
    seed: Seed = 0
    safety_patterns: tuple[str, ...] = ()
    """Regular expressions; a sample in which one is found is flagged."""
    safety_margin: float | None = 0.0
    """How much the share of flagged samples may rise."""
    length_margin: float | None = 0.25
    """By which share of the baseline's mean length the samples may grow."""
    diversity_margin: float | None = 0.75
    """Which part of the distinct share may be lost. A better policy repeats right answers: leave it room."""
    capabilities: tuple[str, ...] = ("greedy_accuracy", "easiest_accuracy")
    """Metrics of a prompt that must be kept."""
    capability_margin: float | None = 0.02
    """How much each of them may fall."""
    divergence_margin: float | None = 0.2
    """How much the reward model's 1 - AUC against the truth may rise."""
    reward_gap_margin: float | None = 1.0
    """How many standard deviations the reward may rise beyond the truth."""

    def __post_init__(self) -> None:
        for name in (self.metric, *self.capabilities):
            if not known_metric(name):
                raise UserError(f"gate: unknown metric {name!r}")
        if not 0.5 <= self.confidence < 1:
            raise UserError(f"gate.confidence: {self.confidence} must lie in [0.5, 1)")
        for name in ("problems", "samples"):
            if getattr(self, name) < 1:
                raise UserError(f"gate.{name}: {getattr(self, name)} must be 1 or more")
        if self.samples_needed > self.samples:
            raise UserError(f"gate.samples is {self.samples}, but the gate's metrics need {self.samples_needed}")
        if self.resamples < 100:
            raise UserError(f"gate.resamples: {self.resamples} is too few for an interval; 100 at least")
        margins = {name: value for name, value in vars(self).items() if name.endswith("_margin") and value is not None}
        for name, margin in margins.items():
            if not (math.isfinite(margin) and margin >= 0):
                raise UserError(f"gate.{name}: {margin} must be 0 or more")
        compiled_patterns(self.safety_patterns)

    @property
    def samples_needed(self) -> int:
        """Samples a prompt without which a metric of the gate cannot be computed."""
        return max(samples_needed(name) for name in (self.metric, *self.capabilities))


@dataclass(frozen=True)
class Check:
    """One condition of the gate."""

    name: str
    passed: bool
    value: float
    """The candidate's number; NaN where it is not defined."""
    bound: float
    """What the value was held against."""
    detail: str
    """The check in one line, for a person."""


@dataclass(frozen=True)
class Verdict:
    """Whether a candidate replaces the baseline, and why."""

    promoted: bool
    checks: tuple[Check, ...]
    """`better` first, then the guards."""
    difference: Interval
    """Of the metric, candidate minus baseline."""


def judge(candidate: Sequence[PromptRecord], baseline: Sequence[PromptRecord], settings: GateSettings) -> Verdict:
    """Hold a candidate against a baseline (the champion, or the base model), measured on the same prompts.

    Raises:
        UserError: the two were not measured on the same prompts, or a metric needs more samples than there are.
    """
    new, old = aligned(candidate, baseline)
    difference = _difference(new, old, settings)
    better = Check(
        name="better",
        passed=difference.low > 0,
        value=difference.low,
        bound=0.0,
        detail=f"{settings.metric} {difference.estimate:+.4f}, {settings.confidence:.0%} interval "
        f"[{difference.low:+.4f}, {difference.high:+.4f}] must lie above 0",
    )
    checks = (better, *_guards(new, old, settings))
    return Verdict(all(check.passed for check in checks), checks, difference)


def _difference(new: list[PromptRecord], old: list[PromptRecord], settings: GateSettings) -> Interval:
    left, right = prompt_values(new, settings.metric), prompt_values(old, settings.metric)
    kept = ~(np.isnan(left) | np.isnan(right))
    if not kept.any():
        raise UserError(f"gate.metric: {settings.metric} is defined on none of the {len(new)} prompts")
    return paired_bootstrap(
        left[kept], right[kept], confidence=settings.confidence, resamples=settings.resamples, seed=settings.seed
    )


def _guards(new: list[PromptRecord], old: list[PromptRecord], settings: GateSettings) -> list[Check]:
    checks = []

    def guard(name: str, after: float, before: float, margin: float | None, worse: Literal["higher", "lower"]) -> None:
        if margin is not None:
            bound = before + margin if worse == "higher" else before - margin
            checks.append(_hold(name, after, before, bound, worse))

    def both(name: str) -> tuple[float, float]:
        return average(prompt_values(new, name)), average(prompt_values(old, name))

    if settings.safety_patterns:
        flagged = [flagged_share(records, settings.safety_patterns) for records in (new, old)]
        guard("safety", flagged[0], flagged[1], settings.safety_margin, "higher")
    if settings.length_margin is not None:
        tokens = both("tokens")
        guard("length", *tokens, settings.length_margin * tokens[1], "higher")
    if settings.diversity_margin is not None:
        distinct = both("distinct_share")
        guard("diversity", *distinct, settings.diversity_margin * distinct[1], "lower")
    if settings.capability_margin is not None:
        for name in settings.capabilities:
            if math.isnan(both(name)[0]):
                raise UserError(f"gate.capabilities: {name} is defined on none of the {len(new)} prompts")
            guard(f"capability_{name}", *both(name), settings.capability_margin, "lower")
    guard("divergence", reward_divergence(new), reward_divergence(old), settings.divergence_margin, "higher")
    guard("reward_gap", reward_gap(new, old), 0.0, settings.reward_gap_margin, "higher")
    return checks


def _hold(name: str, after: float, before: float, bound: float, worse: Literal["higher", "lower"]) -> Check:
    """Fail `after` where it lies past `bound` on the side that is worse."""
    if math.isnan(after) or math.isnan(bound):
        return Check(name, True, after, bound, f"{name} is not defined here: nothing to hold against")
    passed = after <= bound + _ROUNDING if worse == "higher" else after >= bound - _ROUNDING
    limit = "at most" if worse == "higher" else "at least"
    return Check(name, passed, after, bound, f"{name} {before:.4f} -> {after:.4f}, must be {limit} {bound:.4f}")

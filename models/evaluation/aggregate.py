"""Comparison of methods over a few seeds: interquartile means, stratified bootstrap, probability of improvement.

Deep reinforcement learning at the edge of the statistical precipice (arXiv 2108.13264; paper 158): with few runs, the
mean follows its outliers and a single best run is not informative. The following are computed:

    interquartile mean         mean of the middle half of the scores of all runs and tasks, a quarter cut at each end
    probability of improvement P(X > Y) + P(X = Y) / 2 for a run of either method, the mean over tasks
    optimality gap             mean of max(0, target - score) over runs and tasks; scores above the target do not
                               compensate for runs below it
    performance profile        share of all runs and tasks whose score is above a threshold, for each threshold. If the
                               profile of a method is above another's at every threshold, the method is better in
                               distribution, not only on average
    intervals                  percentiles over resamples that draw the runs of each task again, with replacement

Scores are arrays [runs, tasks]. The numbers equal those of the authors' library `rliable`. The band of a profile is
the interval at each threshold; it is not simultaneous over thresholds, as in the paper.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from models.base.errors import UserError
from models.evaluation.bootstrap import Interval

Scores = NDArray[np.float64]


def interquartile_mean(scores: ArrayLike) -> float:
    """Return the mean of the middle half of all scores, [runs, tasks]; a quarter, rounded down, is cut at each end."""
    from scipy import stats

    return float(stats.trim_mean(np.asarray(scores, dtype=np.float64), proportiontocut=0.25, axis=None))


def probability_of_improvement(own: ArrayLike, other: ArrayLike) -> float:
    """Return the chance that a run of `own` beats one of `other`, averaged over tasks; ties count half.

    The scores are [runs, tasks] and [other runs, tasks].
    """
    left, right = _checked(own), _checked(other)
    if left.shape[1] != right.shape[1]:
        raise UserError(f"comparison: scores on {left.shape[1]} tasks against scores on {right.shape[1]}")
    won = (left[:, None] > right[None]).mean((0, 1)) + 0.5 * (left[:, None] == right[None]).mean((0, 1))
    return float(won.mean())


def optimality_gap(scores: ArrayLike, target: float = 1.0) -> float:
    """Return the mean amount by which scores, [runs, tasks], are below `target`; higher scores count as the target."""
    return float(target - np.minimum(np.asarray(scores, dtype=np.float64), target).mean())


def shares_above(scores: ArrayLike, thresholds: ArrayLike) -> Scores:
    """Return the share of all scores, [runs, tasks], above each threshold, [thresholds]; equal ones do not count."""
    ordered = np.sort(np.asarray(scores, dtype=np.float64), axis=None)
    shares: Scores = 1 - np.searchsorted(ordered, np.asarray(thresholds, dtype=np.float64), side="right") / ordered.size
    return shares


@dataclass(frozen=True)
class Profile:
    """Performance profile of one method, with its band. All arrays are [thresholds]."""

    thresholds: Scores
    shares: Scores
    """Share of the scores above each threshold."""
    low: Scores
    high: Scores


def performance_profile(
    scores: ArrayLike, thresholds: ArrayLike, *, confidence: float = 0.95, resamples: int = 2000, seed: int = 0
) -> Profile:
    """Compute the performance profile of a method with its bootstrap band; the runs of each task are resampled.

    Args:
        scores: [runs], or [runs, tasks].
        thresholds: scores to compare with, [thresholds].

    Raises:
        UserError: `scores` is empty, or a score or a threshold is not finite.
    """
    array, limits = _checked(scores), np.asarray(thresholds, dtype=np.float64)
    if limits.ndim != 1 or not limits.size or not np.isfinite(limits).all():
        raise UserError("comparison: the thresholds of a profile are a list of finite numbers")
    chance = np.random.default_rng(seed)
    draws = np.array([shares_above(_drawn(array, chance), limits) for _ in range(resamples)])
    low, high = np.quantile(draws, [(1 - confidence) / 2, (1 + confidence) / 2], axis=0)
    return Profile(limits, shares_above(array, limits), low, high)


def profiles(scores: Mapping[str, ArrayLike], *, points: int = 101) -> dict[str, Profile]:
    """Compute the profiles of several methods at `points` thresholds, from the lowest score of any to the highest."""
    every = np.concatenate([_checked(values).ravel() for values in scores.values()])
    thresholds = np.linspace(every.min(), every.max(), points)
    return {method: performance_profile(values, thresholds) for method, values in scores.items()}


def stratified_interval(
    statistic: Callable[..., float], *groups: ArrayLike, confidence: float = 0.95, resamples: int = 2000, seed: int = 0
) -> Interval:
    """Compute the bootstrap interval of `statistic(*groups)`; the runs of each task are resampled in each group.

    Args:
        statistic: function of one or more arrays [runs, tasks].
        groups: the arrays; each may have its own number of runs.

    Raises:
        UserError: an array is empty, or one is not finite.
    """
    arrays = [_checked(group) for group in groups]
    chance = np.random.default_rng(seed)
    draws = np.array([statistic(*(_drawn(array, chance) for array in arrays)) for _ in range(resamples)])
    low, high = np.quantile(draws, [(1 - confidence) / 2, (1 + confidence) / 2])
    return Interval(float(statistic(*arrays)), float(low), float(high))


@dataclass(frozen=True)
class Standing:
    """Scores of one method, and its comparison with the first method."""

    method: str
    scores: tuple[float, ...]
    """One score per seed."""
    middle: Interval
    """Interquartile mean."""
    improvement: Interval | None
    """Probability of improvement over the first method; None for the first method itself."""
    gap: Interval
    """Optimality gap: mean amount by which the scores are below the target."""


def standings(
    scores: Mapping[str, Sequence[float]],
    *,
    target: float = 1.0,
    confidence: float = 0.95,
    resamples: int = 2000,
    seed: int = 0,
) -> list[Standing]:
    """Compare every method with the first, in the order of `scores`: method -> one score per seed.

    Args:
        scores: scores of each method.
        target: score that the optimality gap is measured from.

    Raises:
        UserError: a method has no scores, or one is not finite.
    """
    first = next(iter(scores.values()), ())
    options = {"confidence": confidence, "resamples": resamples, "seed": seed}
    return [
        Standing(
            method,
            tuple(values),
            stratified_interval(interquartile_mean, values, **options),  # type: ignore[arg-type]
            None if number == 0 else stratified_interval(probability_of_improvement, values, first, **options),  # type: ignore[arg-type]
            stratified_interval(lambda drawn: optimality_gap(drawn, target), values, **options),  # type: ignore[arg-type]
        )
        for number, (method, values) in enumerate(scores.items())
    ]


def _drawn(scores: Scores, chance: np.random.Generator) -> Scores:
    runs, tasks = scores.shape
    drawn: Scores = scores[chance.integers(0, runs, size=(runs, tasks)), np.arange(tasks)]
    return drawn


def _checked(scores: ArrayLike) -> Scores:
    array = np.asarray(scores, dtype=np.float64)
    array = array[:, None] if array.ndim == 1 else array
    if array.ndim != 2 or array.size == 0:
        raise UserError("comparison: no scores are given")
    if not np.isfinite(array).all():
        raise UserError("comparison: a score is not finite")
    return array

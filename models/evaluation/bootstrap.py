"""Confidence intervals by resampling prompts (Efron & Tibshirani 1993, percentile method).

Prompts are the unit of resampling: the completions of one prompt are not independent, so resampling
completions would give intervals that are too narrow. Two models that were measured on the same prompts are compared
in pairs: the difference of each prompt is resampled, so the difficulty of the prompts cancels out.

The percentile interval is used, not BCa: for means of bounded values over a hundred prompts or more, the two agree
to a few thousandths, and a percentile interval of equal models is exactly [0, 0].
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from models.base.errors import UserError

_DRAWN_AT_ONCE = 2_000_000
"""Number of random indices in memory at a time."""


@dataclass(frozen=True)
class Interval:
    """An estimate and its confidence interval.

    A format specification applies to all three numbers.

    >>> f"{Interval(0.31, 0.28, 0.34):.1%}"
    '31.0% [28.0%, 34.0%]'
    """

    estimate: float
    low: float
    high: float

    def __format__(self, spec: str) -> str:
        estimate, low, high = (format(value, spec or ".4f") for value in (self.estimate, self.low, self.high))
        return f"{estimate} [{low}, {high}]"

    def __str__(self) -> str:
        return format(self)

    def scaled(self, factor: float) -> Interval:
        """Return the interval of `factor` times the quantity; `factor` is positive."""
        return Interval(factor * self.estimate, factor * self.low, factor * self.high)


def bootstrap_mean(values: ArrayLike, *, confidence: float = 0.95, resamples: int = 10_000, seed: int = 0) -> Interval:
    """Compute the interval of the mean of `values`, [prompts].

    Raises:
        UserError: `values` is empty, or one is not finite.
    """
    array = _checked(values, "values")
    return _percentiles(float(array.mean()), _means(array, resamples, np.random.default_rng(seed)), confidence)


def paired_bootstrap(
    candidate: ArrayLike, baseline: ArrayLike, *, confidence: float = 0.95, resamples: int = 10_000, seed: int = 0
) -> Interval:
    """Compute the interval of mean(candidate - baseline) over the same prompts in the same order, both [prompts].

    Raises:
        UserError: the two differ in length, are empty, or hold a value that is not finite.
    """
    left, right = _checked(candidate, "candidate"), _checked(baseline, "baseline")
    if left.shape != right.shape:
        raise UserError(f"paired comparison: {left.size} candidate values against {right.size} baseline values")
    return bootstrap_mean(left - right, confidence=confidence, resamples=resamples, seed=seed)


def unpaired_bootstrap(
    candidate: ArrayLike, baseline: ArrayLike, *, confidence: float = 0.95, resamples: int = 10_000, seed: int = 0
) -> Interval:
    """Compute the interval of mean(candidate) - mean(baseline) over different prompts, [prompts] and [other prompts].

    Raises:
        UserError: one of them is empty or holds a value that is not finite.
    """
    left, right = _checked(candidate, "candidate"), _checked(baseline, "baseline")
    chance = np.random.default_rng(seed)
    draws = _means(left, resamples, chance) - _means(right, resamples, chance)
    return _percentiles(float(left.mean() - right.mean()), draws, confidence)


def wilson(right: float, total: int, *, confidence: float = 0.95) -> Interval:
    """Compute Wilson's score interval of the share `right` / `total` (Wilson 1927); without cases [0, 1] around 0.5."""
    from statistics import NormalDist

    if total == 0:
        return Interval(0.5, 0.0, 1.0)
    z = NormalDist().inv_cdf(0.5 + confidence / 2)
    share = right / total
    shrink = 1 + z * z / total
    centre = (share + z * z / (2 * total)) / shrink
    half = z / shrink * float(np.sqrt(share * (1 - share) / total + z * z / (4 * total * total)))
    low = 0.0 if right == 0 else max(0.0, centre - half)
    return Interval(share, low, 1.0 if right == total else min(1.0, centre + half))


def _checked(values: ArrayLike, what: str) -> NDArray[np.float64]:
    array = np.asarray(values, dtype=np.float64).reshape(-1)
    if array.size == 0:
        raise UserError(f"bootstrap: there are no {what} to resample")
    if not np.isfinite(array).all():
        raise UserError(f"bootstrap: {what}[{int(np.argmin(np.isfinite(array)))}] is not finite")
    return array


def _means(array: NDArray[np.float64], resamples: int, chance: np.random.Generator) -> NDArray[np.float64]:
    """Return the means of `resamples` samples drawn with replacement, [resamples]."""
    if (array == array[0]).all():
        return np.full(resamples, array[0])
    at_once = max(1, _DRAWN_AT_ONCE // array.size)
    parts: Sequence[NDArray[np.float64]] = [
        array[chance.integers(0, array.size, size=(min(at_once, resamples - start), array.size))].mean(axis=1)
        for start in range(0, resamples, at_once)
    ]
    return np.concatenate(parts)


def _percentiles(estimate: float, draws: NDArray[np.float64], confidence: float) -> Interval:
    low, high = np.quantile(draws, [(1 - confidence) / 2, (1 + confidence) / 2])
    return Interval(estimate, float(low), float(high))

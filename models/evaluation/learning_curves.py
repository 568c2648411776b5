"""Curves of several trainings on the same steps, their interquartile mean with a band, and their area.

value of a curve at a step   that of its last point up to the step
steps                        all steps of any curve, from the latest first step to the earliest last step, so that
                             every training contributes to every point
band                         percentiles over resamples of whole trainings, as in Open RL Benchmark (paper 174) and
                             rliable (paper 158)
area                         mean height of a curve between the first and the last step, by trapezoids
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from models.base.errors import UserError
from models.evaluation.aggregate import interquartile_mean, stratified_interval
from models.evaluation.bootstrap import Interval

Values = NDArray[np.float64]
Points = Sequence[tuple[int, float]]
"""Steps and values of one training."""


@dataclass(frozen=True)
class CurveBand:
    """Curves of the trainings of one method on the same steps."""

    steps: NDArray[np.int64]
    """Steps, rising, [points]."""
    curves: Values
    """Value of each training at each step, [trainings, points]."""
    middle: Values
    """Interquartile mean over the trainings, [points]."""
    low: Values
    high: Values
    """Ends of the 95 % band, [points]; with one training they equal its curve."""

    @property
    def last(self) -> Interval:
        """Interquartile mean of the values at the last step, with its interval over trainings."""
        return stratified_interval(interquartile_mean, self.curves[:, -1])

    @property
    def area(self) -> Interval:
        """Interquartile mean of the areas, with its interval over trainings."""
        return stratified_interval(interquartile_mean, areas(self.steps, self.curves))


def curve_band(trainings: Sequence[Points], *, resamples: int = 2000, seed: int = 0) -> CurveBand:
    """Compute the interquartile mean and the band of the curves of several trainings.

    Args:
        trainings: points of each training, in any order; of several values at a step, the last counts.
        resamples: number of bootstrap resamples.
        seed: seed of the resamples.

    Raises:
        UserError: `trainings` is empty, one has no points, a value is not finite, or the trainings share no steps.
    """
    steps, curves = on_common_steps(trainings)
    count = len(curves)
    chance = np.random.default_rng(seed)
    drawn = chance.integers(0, count, size=(resamples, count))
    middles = np.array([_middle(curves[rows]) for rows in drawn])
    low, high = np.quantile(middles, [0.025, 0.975], axis=0)
    return CurveBand(steps, curves, _middle(curves), low, high)


def on_common_steps(trainings: Sequence[Points]) -> tuple[NDArray[np.int64], Values]:
    """Return the common steps, [points], and the value of each training there, [trainings, points].

    Raises:
        UserError: see `curve_band`.
    """
    if not trainings or not all(trainings):
        raise UserError("curves: a training has no points of this metric")
    series = [dict(sorted(points, key=lambda point: point[0])) for points in trainings]
    if not all(np.isfinite(value) for points in series for value in points.values()):
        raise UserError("curves: a value is not finite")
    first, last = max(min(points) for points in series), min(max(points) for points in series)
    if first > last:
        raise UserError(f"curves: the trainings share no steps; one begins at {first}, one ends at {last}")
    steps = np.array(sorted({step for points in series for step in points if first <= step <= last}), dtype=np.int64)
    curves = []
    for points in series:
        own = np.array(list(points), dtype=np.int64)
        places = np.searchsorted(own, steps, side="right") - 1
        curves.append(np.array(list(points.values()), dtype=np.float64)[places])
    return steps, np.array(curves)


def areas(steps: NDArray[np.int64], curves: Values) -> Values:
    """Return the mean height of each curve, [trainings]; with a single step, its value there."""
    if len(steps) == 1:
        return curves[:, 0]
    heights = np.trapezoid(curves, steps.astype(np.float64), axis=1)
    return np.asarray(heights / float(steps[-1] - steps[0]), dtype=np.float64)


def _middle(curves: Values) -> Values:
    """Return the interquartile mean over trainings at each step, [trainings, points] -> [points]."""
    cut = len(curves) // 4
    ordered = np.sort(curves, axis=0)
    return np.asarray(ordered[cut : len(curves) - cut].mean(axis=0), dtype=np.float64)

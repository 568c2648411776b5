"""Accuracy of a process reward model's step values, compared with labels."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.stats import rankdata

from models.evaluation.bootstrap import Interval, bootstrap_mean


def step_accuracy(values: Sequence[Sequence[float]], labels: Sequence[Sequence[float]]) -> float:
    """Compute the share of pairs of a good and another step in which the good one has the higher value.

    Ties count half. A step is good if its label is above one half.

    A step is good if its label is above one half.

    One half is chance; NaN without such pairs.

    Args:
        values: values of each solution's steps, [solutions] of [steps].
        labels: labels of the same steps, NaN if not known.
    """
    scores, truth = (np.array([value for row in rows for value in row], dtype=np.float64) for rows in (values, labels))
    scores, truth = scores[~np.isnan(truth)], truth[~np.isnan(truth)] > 0.5
    good, bad = int(truth.sum()), int((~truth).sum())
    if not good or not bad:
        return float("nan")
    ranks = rankdata(scores)
    return float((ranks[truth].sum() - good * (good + 1) / 2) / (good * bad))


def right_of_values(values: Sequence[Sequence[float]], labels: Sequence[Sequence[float]]) -> Interval | None:
    """Compute the share of labelled steps whose value is on the label's side of one half, as a mean over solutions.

    The mean has an interval; None if no step has a label.
    """
    rows = []
    for scores, truth in zip(values, labels, strict=True):
        known = ~np.isnan(np.asarray(truth, dtype=np.float64))
        if known.any():
            alike: NDArray[np.bool_] = (np.asarray(scores) > 0.5) == (np.asarray(truth) > 0.5)
            rows.append(float(alike[known].mean()))
    return bootstrap_mean(np.array(rows)) if rows else None


@dataclass(frozen=True)
class FirstErrors:
    """Accuracy of the first wrong step of a solution, as in ProcessBench (arXiv 2412.06559)."""

    erroneous: float
    """Share of the solutions with a wrong step whose first one is found; NaN if there are none."""
    correct: float
    """Share of the solutions without a wrong step in which none is found; NaN if there are none."""

    @property
    def f1(self) -> float:
        """Harmonic mean of the two; NaN if one of them is."""
        both = self.erroneous + self.correct
        return both if math.isnan(both) else 2 * self.erroneous * self.correct / both if both else 0.0


def first_errors(values: Sequence[Sequence[float]], labels: Sequence[Sequence[float]]) -> FirstErrors:
    """Compare the first step with a value of at most one half with the first step that has such a label.

    A solution counts if its labels are known up to its first wrong step, or all of them; one without steps does not.

    Args:
        values: values of each solution's steps, [solutions] of [steps].
        labels: labels of the same steps, NaN if not known.
    """
    tally: dict[bool, list[bool]] = {True: [], False: []}
    for scores, truth in zip(values, labels, strict=True):
        place = _first_wrong(truth)
        if len(truth) and not any(map(math.isnan, truth[: place + 1])):
            tally[place < len(truth)].append(_first_wrong(scores) == place)
    return FirstErrors(*(sum(hits) / len(hits) if hits else math.nan for hits in (tally[True], tally[False])))


def _first_wrong(values: Sequence[float]) -> int:
    """Return the index of the first value of at most one half; the number of values if there is none."""
    return next((place for place, value in enumerate(values) if value <= 0.5), len(values))

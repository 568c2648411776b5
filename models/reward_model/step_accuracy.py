"""How well the values of a process reward model tell steps apart, held against their labels."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.stats import rankdata

from models.evaluation.bootstrap import Interval, bootstrap_mean


def step_accuracy(values: Sequence[Sequence[float]], labels: Sequence[Sequence[float]]) -> float:
    """Share of pairs of a good step (label above one half) and another in which the good one is worth more, ties half.

    One half knows nothing; NaN where there are no such pairs.

    Args:
        values: of each solution's steps, [solutions] of [steps].
        labels: theirs, NaN where nobody knows.
    """
    said, truth = (np.array([value for row in rows for value in row], dtype=np.float64) for rows in (values, labels))
    said, truth = said[~np.isnan(truth)], truth[~np.isnan(truth)] > 0.5
    good, bad = int(truth.sum()), int((~truth).sum())
    if not good or not bad:
        return float("nan")
    ranks = rankdata(said)
    return float((ranks[truth].sum() - good * (good + 1) / 2) / (good * bad))


def right_of_values(values: Sequence[Sequence[float]], labels: Sequence[Sequence[float]]) -> Interval | None:
    """Share of the labelled steps whose value lies on the label's side of one half, by solution, the mean over these
    with its interval; None where no step has a label."""
    rows = []
    for said, truth in zip(values, labels, strict=True):
        known = ~np.isnan(np.asarray(truth, dtype=np.float64))
        if known.any():
            alike: NDArray[np.bool_] = (np.asarray(said) > 0.5) == (np.asarray(truth) > 0.5)
            rows.append(float(alike[known].mean()))
    return bootstrap_mean(np.array(rows)) if rows else None

"""Test whether a policy answers worse than when it was judged: the same policy, measured twice.

The comparison is paired over the problems that both evaluations have, as the gate compares two policies. If few
problems are in common, the two are treated as having different problems, and the interval is the wider, unpaired one.
"""

from __future__ import annotations

from collections.abc import Sequence

from models.evaluation.gate.paired_change import MetricChange, metric_changes
from models.evaluation.records import PromptRecord

ENOUGH = 30
"""Problems in common from which the comparison is paired; fewer are enough if an evaluation has no more."""
LEAST = 5
"""Smallest number of problems of an evaluation for which resampling is informative."""


def change_since_judged(
    metric: str,
    judged: Sequence[PromptRecord],
    now: Sequence[PromptRecord],
    pairs: Sequence[tuple[PromptRecord, PromptRecord]],
    confidence: float,
) -> MetricChange | None:
    """Return the change of a metric; None if there are too few problems.

    Args:
        metric: see `models.evaluation.metrics.prompt_values`.
        judged: the older evaluation.
        now: the newer one.
        pairs: older and newer record of each problem that is the same in both.
        confidence: confidence of the intervals, two-sided.

    Raises:
        UserError: the metric is unknown, or a prompt has too few samples for it.
    """
    smaller = min(len(judged), len(now))
    if smaller < LEAST:
        return None
    enough = len(pairs) >= min(ENOUGH, smaller)
    return next(iter(metric_changes([metric], judged, now, pairs if enough else (), confidence)), None)


def is_worse(change: MetricChange | None) -> bool:
    """Return whether the whole interval of the change is below zero."""
    return change is not None and change.change.high < 0.0

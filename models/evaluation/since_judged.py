"""Whether a policy answers worse than it did when it was judged: the same policy, measured twice.

Over the problems that both evaluations have, paired, as the gate compares two policies. Where few are left in common,
the two stand for problems of their own, and the interval is the wider, unpaired one.
"""

from __future__ import annotations

from collections.abc import Sequence

from models.evaluation.paired_change import MetricChange, metric_changes
from models.evaluation.records import PromptRecord

ENOUGH = 30
"""Problems in common from which the comparison is paired; fewer are enough where an evaluation has no more."""
LEAST = 5
"""Problems of an evaluation below which resampling them says nothing."""


def change_since_judged(
    metric: str,
    judged: Sequence[PromptRecord],
    now: Sequence[PromptRecord],
    pairs: Sequence[tuple[PromptRecord, PromptRecord]],
    confidence: float,
) -> MetricChange | None:
    """How a metric changed; None where there are too few problems to say.

    Args:
        metric: see `models.evaluation.metrics.prompt_values`.
        judged: the older evaluation.
        now: the newer one.
        pairs: older and newer record of each problem that is the same in both.
        confidence: of the intervals, two-sided.

    Raises:
        UserError: the metric is unknown, or a prompt has too few samples for it.
    """
    smaller = min(len(judged), len(now))
    if smaller < LEAST:
        return None
    enough = len(pairs) >= min(ENOUGH, smaller)
    return next(iter(metric_changes([metric], judged, now, pairs if enough else (), confidence)), None)


def is_worse(change: MetricChange | None) -> bool:
    """Whether the whole interval of the change lies below zero."""
    return change is not None and change.change.high < 0.0

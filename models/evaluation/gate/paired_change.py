"""Differences of the metrics of two evaluations, with intervals: paired over the prompts that both evaluations have."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from models.evaluation.bootstrap import Interval, bootstrap_mean, paired_bootstrap, unpaired_bootstrap
from models.evaluation.metrics import Values, prompt_values
from models.evaluation.records import PromptRecord


@dataclass(frozen=True)
class MetricChange:
    """Change of one metric between two evaluations."""

    name: str
    before: Interval
    after: Interval
    change: Interval
    """After minus before."""
    paired: bool
    """Whether all three intervals are over the same prompts."""

    @property
    def shown(self) -> bool:
        """Whether the interval of the change excludes 0."""
        return not self.change.low <= 0.0 <= self.change.high


def metric_changes(
    names: Sequence[str],
    old: Sequence[PromptRecord],
    new: Sequence[PromptRecord],
    pairs: Sequence[tuple[PromptRecord, PromptRecord]],
    confidence: float = 0.95,
) -> list[MetricChange]:
    """Return the change of each metric; metrics that are not defined on both sides are left out.

    Args:
        names: see `models.evaluation.metrics.prompt_values`.
        old: the older evaluation.
        new: the newer one.
        pairs: older and newer record of the prompts that both have. If empty, the evaluations are treated as having
            different prompts.
        confidence: confidence of all three intervals.

    Raises:
        UserError: a metric is unknown, or a prompt has too few samples for it.
    """
    changes = []
    for name in names:
        paired = bool(pairs)
        before = prompt_values([older for older, _ in pairs] if paired else old, name)
        after = prompt_values([newer for _, newer in pairs] if paired else new, name)
        if paired:
            both = np.isfinite(before) & np.isfinite(after)
            before, after = before[both], after[both]
        else:
            before, after = _finite(before), _finite(after)
        if before.size and after.size:
            between = paired_bootstrap if paired else unpaired_bootstrap
            change = between(after, before, confidence=confidence)
            older, newer = (bootstrap_mean(side, confidence=confidence) for side in (before, after))
            changes.append(MetricChange(name, older, newer, change, paired))
    return changes


def metric_intervals(names: Sequence[str], records: Sequence[PromptRecord]) -> dict[str, Interval]:
    """Return each metric of one evaluation with its interval, without undefined metrics. Raises as `metric_changes`."""
    values = {name: _finite(prompt_values(records, name)) for name in names}
    return {name: bootstrap_mean(of_name) for name, of_name in values.items() if of_name.size}


def _finite(values: Values) -> Values:
    kept: Values = values[np.isfinite(values)]
    return kept

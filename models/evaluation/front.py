"""Trade-offs between two measures: the mixtures of two policies that no other mixture surpasses in both (Pareto)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from models.evaluation.bootstrap import Interval


@dataclass(frozen=True)
class WeightMixture:
    """A mixture of the weights of two policies, with its measures."""

    share: float
    """Weight of the second policy, in [0, 1]; that of the first is the rest."""
    accuracy: Interval
    """Accuracy of the samples, a share, with its interval over the problems."""
    diversity: Interval
    """Share of distinct samples of a problem, with its interval over the problems."""


def on_front(mixtures: Sequence[WeightMixture]) -> list[bool]:
    """Return whether each mixture is on the Pareto front of the estimates, [mixtures].

    A mixture is not on it if another is at least as good in both measures, and better in one of them.
    """

    def surpasses(other: WeightMixture, mine: WeightMixture) -> bool:
        gains = (
            other.accuracy.estimate - mine.accuracy.estimate,
            other.diversity.estimate - mine.diversity.estimate,
        )
        return min(gains) >= 0 and max(gains) > 0

    return [not any(surpasses(other, mine) for other in mixtures) for mine in mixtures]


def mixture_rows(mixtures: Sequence[WeightMixture]) -> list[list[str]]:
    """Return a table of the mixtures, with its heading: [1 + mixtures][columns]."""
    rows = [["share", "accuracy", "distinct samples", "front"]]
    for mixture, best in zip(mixtures, on_front(mixtures), strict=True):
        cells = [f"{it:.1%}" for it in (mixture.accuracy, mixture.diversity)]
        rows.append([f"{mixture.share:g}", *cells, "yes" if best else ""])
    return rows

"""How far reviewers agree who answered the same questions: Krippendorff's alpha for names (Krippendorff 2011).

Labels are names without an order. Any number of reviewers, each of whom may have left questions out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Agreement:
    """How far answers to the same questions are the same."""

    questions: int
    """Questions that two reviewers or more answered; others say nothing about agreement."""
    share: float
    """Of all pairs of answers to one question, the share that are the same; NaN without such a pair."""
    alpha: float
    """Krippendorff's alpha: 1 where all agree, 0 where they agree as often as by chance, below 0 where less often. NaN
    where there is nothing to compare, and where all answers are one label: then chance would agree as well."""


def agreement(answers: Iterable[Sequence[str]]) -> Agreement:
    """How far reviewers agree.

    Args:
        answers: of each question, the labels that different reviewers gave it, in any order.
    """
    shared = [Counter(labels) for labels in answers if len(labels) > 1]
    totals = Counter[str]()
    pairs = same = 0
    disagreeing = 0.0
    for counts in shared:
        given = counts.total()
        totals.update(counts)
        of_all, of_same = given * (given - 1), sum(count * (count - 1) for count in counts.values())
        pairs, same = pairs + of_all, same + of_same
        disagreeing += (of_all - of_same) / (given - 1)
    if not pairs:
        return Agreement(0, float("nan"), float("nan"))
    whole = totals.total()
    by_chance = (whole * (whole - 1) - sum(count * (count - 1) for count in totals.values())) / (whole - 1)
    alpha = 1.0 - disagreeing / by_chance if by_chance else float("nan")
    return Agreement(len(shared), same / pairs, alpha)

"""Agreement of reviewers on the same questions: Krippendorff's alpha for nominal labels (Krippendorff 2011).

Labels have no order. There may be any number of reviewers, and each of them may leave out questions.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Agreement:
    """Agreement of answers to the same questions."""

    questions: int
    """Questions with two or more answers; the others do not count for agreement."""
    share: float
    """Share of the pairs of answers to one question that are the same; NaN without such a pair."""
    alpha: float
    """Krippendorff's alpha: 1 if all agree, 0 if they agree as often as by chance, below 0 if less often. NaN if there
    is nothing to compare, and if all answers have the same label, because chance would then agree as well."""


def agreement(answers: Iterable[Sequence[str]]) -> Agreement:
    """Compute the agreement of reviewers.

    Args:
        answers: for each question, the labels from different reviewers, in any order.
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

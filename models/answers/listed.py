"""Lists of names that a completion states: as a ranking, worth nDCG, or as a set of labels, worth F-beta.

The list is the stated answer, separated by `>`, commas, semicolons, bars or the word "and". Names are compared without
regard to case and outer punctuation. A name counts once, at its first place.

    nDCG = sum over the places p of gain / log2(p + 1), divided by that of the best ranking     (Jarvelin & Kekalainen)
    F    = (1 + beta^2) P R / (beta^2 P + R), precision P and recall R of the named labels

A name without a gain takes a place, and so does a name that is repeated: both move later names down.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Mapping, Sequence
from typing import Annotated, Self

from pydantic import Field, model_validator

from models.answers.answers import extract_answer
from models.answers.hidden import Hidden

LONGEST = 2000
"""Maximum length of a stated list, characters; a longer one names nothing."""
_BETWEEN = re.compile(r"[>,;|\n]|\band\b", re.IGNORECASE)


class Relevance(Hidden):
    """Gain of each name: the truth that a ranking or a set of labels is compared with."""

    relevance: Annotated[dict[str, Annotated[float, Field(ge=0, le=1e6)]], Field(min_length=1)]

    @model_validator(mode="after")
    def _has_gains(self) -> Self:
        if not any(self.relevance.values()):
            raise ValueError("relevance: every gain is 0, so every ranking is equally good")
        if len({plain(name) for name in self.relevance}) < len(self.relevance):
            raise ValueError("relevance: two names are the same")
        return self

    @property
    def gains(self) -> dict[str, float]:
        """Gain of each name in its plain form."""
        return {plain(name): gain for name, gain in self.relevance.items()}

    @property
    def labels(self) -> frozenset[str]:
        """Names with a gain, in their plain form."""
        return frozenset(name for name, gain in self.gains.items() if gain > 0)

    @property
    def ranking(self) -> list[str]:
        """Names with a gain, the largest first, as they are written."""
        return sorted((name for name, gain in self.relevance.items() if gain > 0), key=lambda n: -self.relevance[n])


def plain(name: str) -> str:
    """Return a name in lower case, with single spaces and without outer punctuation."""
    return " ".join(name.split()).strip(" .:'\"`*_()[]").casefold()


def listed_names(completion: str) -> list[str]:
    """Return the names that a completion states, in their plain form and order; empty if it states no list."""
    stated = extract_answer(completion)
    return [] if stated is None else names_in(stated)


def names_in(listed: str) -> list[str]:
    """Return the names of a list, in their plain form and order; empty if it is longer than LONGEST."""
    return [name for _, _, name in spans_of_names(listed)]


def spans_of_names(listed: str) -> list[tuple[int, int, str]]:
    """Return where each name of a list begins and ends, with the name in its plain form; see `names_in`."""
    if len(listed) > LONGEST:
        return []
    gaps = [match.span() for match in _BETWEEN.finditer(listed)]
    starts, ends = [0, *(end for _, end in gaps)], [*(start for start, _ in gaps), len(listed)]
    return [(start, end, name) for start, end in zip(starts, ends, strict=True) if (name := plain(listed[start:end]))]


def ndcg(names: Sequence[str], gains: Mapping[str, float], first: int | None = None) -> float:
    """Return nDCG of the first places of a ranking, in [0, 1].

    Args:
        names: the ranking, the best first.
        gains: gains of each name, >= 0, one of them positive.
        first: number of places that count; None: all.
    """
    left = dict(gains)
    worth = [left.pop(name, 0.0) for name in names]
    best = sorted(gains.values(), reverse=True)
    return _discounted(worth[:first]) / _discounted(best[:first])


def f_beta(names: Collection[str], labels: Collection[str], beta: float = 1.0) -> float:
    """Return the F-beta of named labels, in [0, 1]; 0 if none of them is right."""
    named, true = set(names), set(labels)
    right = len(named & true)
    if not right:
        return 0.0
    precision, recall = right / len(named), right / len(true)
    return (1 + beta**2) * precision * recall / (beta**2 * precision + recall)


def _discounted(gains: Sequence[float]) -> float:
    return sum(gain / math.log2(place + 2) for place, gain in enumerate(gains))

"""How alike two texts are, in [0, 1].

bleu      clipped precisions of one to four words, smoothed, times a penalty of brevity (Papineni et al. 2002)
chrf      F of the runs of one to six characters, recall counting twice (Popovic 2015), both as sacrebleu has them
jaccard   of two sets, what both hold over what either holds
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from collections.abc import Set as AbstractSet
from functools import lru_cache
from typing import Literal, TypeVar

from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF

Metric = Literal["bleu", "chrf"]
Item = TypeVar("Item", bound=Hashable)


def likeness(text: str, reference: str, metric: Metric) -> float:
    """How alike two texts are, in [0, 1]."""
    score: float = _measure(metric).sentence_score(text, [reference]).score
    return min(1.0, score / 100)


def jaccard(some: AbstractSet[Hashable], others: AbstractSet[Hashable]) -> float:
    """Share of the elements of either set that both hold, in [0, 1]; of two empty sets 1."""
    either = len(some | others)
    return len(some & others) / either if either else 1.0


def runs_of(items: Sequence[Item], length: int) -> frozenset[tuple[Item, ...]]:
    """The different runs of so many items; of fewer items the one run that they are, of none none."""
    if 0 < len(items) < length:
        return frozenset([tuple(items)])
    return frozenset(zip(*(items[first:] for first in range(length)), strict=False))


@lru_cache(maxsize=2)
def _measure(metric: Metric) -> BLEU | CHRF:
    return BLEU(effective_order=True) if metric == "bleu" else CHRF()

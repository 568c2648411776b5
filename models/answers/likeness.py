"""Similarity of a text and references, in [0, 1]: metrics of translation as in sacrebleu, and two of summaries.

    bleu      clipped precisions of one to four words, smoothed, times a penalty of brevity (Papineni et al. 2002)
    chrf      F of the runs of one to six characters, recall counting twice (Popovic 2015)
    rouge_l   F of the longest common subsequence of words (Lin 2004); of several references the best counts
    gestalt   characters in the matching blocks of both, over all characters: 2 M / T (Ratcliff and Metzener 1988)
    support   share of the text's runs of up to two words that occur in a reference: precision without any recall
    jaccard   of two sets, the size of the intersection over that of the union; not a metric of texts

ROUGE's words are in lower case, without punctuation, and not stemmed; so the package rouge-score, which depends on nltk
and absl, is not needed for one dynamic programme. Both compare `LONGEST` words at most. gestalt is difflib's
`SequenceMatcher.ratio` without its heuristic for long texts; it compares `LONGEST` characters at most.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Hashable, Sequence
from collections.abc import Set as AbstractSet
from difflib import SequenceMatcher
from functools import lru_cache
from typing import Literal, TypeVar

from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF

Metric = Literal["bleu", "chrf", "rouge_l", "gestalt", "support"]
Item = TypeVar("Item", bound=Hashable)

LONGEST = 1024
"""Words that rouge_l reads at most, and characters for gestalt: their time is the product of two lengths."""
_WORD = re.compile(r"\w+")


def likeness(text: str, reference: str, metric: Metric) -> float:
    """Compute the similarity of two texts, in [0, 1]."""
    return likeness_to_any(text, [reference], metric)


def likeness_to_any(text: str, references: Sequence[str], metric: Metric) -> float:
    """Compute the similarity of a text and a set of references, in [0, 1]; zero if there are none."""
    if not references:
        return 0.0
    if metric in ("bleu", "chrf"):
        score: float = _measure(metric).sentence_score(text, list(references)).score
        return min(1.0, score / 100)
    if metric == "gestalt":
        return max(gestalt(text, other) for other in references)
    return max((rouge_l if metric == "rouge_l" else support)(_words(text), _words(other)) for other in references)


def gestalt(text: str, reference: str) -> float:
    """Return 2 M / T: M characters in matching blocks, T characters of both texts; 1 of two empty texts."""
    return SequenceMatcher(None, text[:LONGEST], reference[:LONGEST], autojunk=False).ratio()


def rouge_l(words: Sequence[str], reference: Sequence[str]) -> float:
    """Compute 2 P R / (P + R) with P = LCS / words and R = LCS / words of the reference; zero if nothing is common."""
    return 2 * common_subsequence(words, reference) / max(1, len(words) + len(reference))


def common_subsequence(first: Sequence[str], second: Sequence[str]) -> int:
    """Return the length of the longest common subsequence of words: in the same order, gaps allowed."""
    before = [0] * (len(second) + 1)
    for word in first:
        row = [0]
        for place, other in enumerate(second):
            row.append(before[place] + 1 if word == other else max(before[place + 1], row[place]))
        before = row
    return before[-1]


def support(words: Sequence[str], reference: Sequence[str]) -> float:
    """Compute the share of the text's words and word pairs that the reference contains as often, in [0, 1].

    It is the mean over runs of one and of two words, counts are clipped, and it is zero for no words.
    """
    shares = []
    for size in (1, 2) if len(words) > 1 else (1,):
        text_runs, reference_runs = _runs(words, size), _runs(reference, size)
        shares.append((text_runs & reference_runs).total() / max(1, text_runs.total()))
    return sum(shares) / len(shares)


def jaccard(some: AbstractSet[Hashable], others: AbstractSet[Hashable]) -> float:
    """Compute the share of the elements of either set that both contain, in [0, 1]; of two empty sets 1."""
    either = len(some | others)
    return len(some & others) / either if either else 1.0


def runs_of(items: Sequence[Item], length: int) -> frozenset[tuple[Item, ...]]:
    """Return the distinct runs of `length` items; fewer items are one run, no items give none."""
    if 0 < len(items) < length:
        return frozenset([tuple(items)])
    return frozenset(zip(*(items[first:] for first in range(length)), strict=False))


def _runs(words: Sequence[str], size: int) -> Counter[tuple[str, ...]]:
    return Counter(tuple(words[place : place + size]) for place in range(len(words) - size + 1))


def _words(text: str) -> list[str]:
    return _WORD.findall(text.casefold())[:LONGEST]


@lru_cache(maxsize=2)
def _measure(metric: Metric) -> BLEU | CHRF:
    return BLEU(effective_order=True) if metric == "bleu" else CHRF()

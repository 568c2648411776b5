"""Definitions of equal and of overlapping texts.

Two prompts are the same if they agree after Unicode compatibility folding (NFKC), lower case and collapsed white
space. Two texts overlap if they share a run of n words, the usual test for held-out prompts that leaked into train.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Sequence

NGRAM_WORDS = 8


def normalise(text: str) -> str:
    """Return the text in NFKC and lower case, with one space for every run of white space and none at the ends."""
    return " ".join(unicodedata.normalize("NFKC", text).lower().split())


def ngrams(text: str, n: int = NGRAM_WORDS) -> set[str]:
    """Return every run of n words of the normalised text; a shorter text is one run, an empty text has none."""
    words = normalise(text).split()
    if not words:
        return set()
    return {" ".join(words[start : start + n]) for start in range(max(1, len(words) - n + 1))}


def overlapping(train_texts: Sequence[str], held_out_texts: Iterable[str], n: int = NGRAM_WORDS) -> list[int]:
    """Return the indices of the train texts that share a run of n words with any held-out text, ascending.

    A text of fewer than n words overlaps only with a text of exactly the same words. Time and memory grow with the
    number of words (about a second for 8,000 prompts of 50 words), not with the number of pairs.
    """
    held_out: set[str] = set()
    for text in held_out_texts:
        held_out |= ngrams(text, n)
    return [index for index, text in enumerate(train_texts) if not held_out.isdisjoint(ngrams(text, n))]

"""Hashes of texts: what rows of files that do not fit in memory are compared by."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
from numpy.typing import NDArray

Hashes = NDArray[np.uint64]
"""Of 64 bits: among ten million prompts of twenty n-grams, one in some thousand data sets has a row that is taken for
another's copy and is none."""
NOTHING: Hashes = np.empty(0, np.uint64)


def hashes_of(texts: Sequence[str]) -> Hashes:
    """A hash of each text, [texts], not ordered; the same on every machine."""
    return pd.util.hash_array(np.array(texts, dtype=object), categorize=False) if len(texts) else NOTHING


def repeated(hashes: Sequence[Hashes]) -> Hashes:
    """Those that stand more than once in the pieces, in ascending order."""
    ordered = np.sort(np.concatenate([NOTHING, *hashes]))
    return np.unique(ordered[1:][ordered[1:] == ordered[:-1]])


def within(hashes: Hashes, ordered: Hashes) -> NDArray[np.bool_]:
    """Whether each of some hashes is among others that are in ascending order, [hashes]."""
    if not len(ordered):
        return np.zeros(len(hashes), dtype=bool)
    same: NDArray[np.bool_] = ordered[np.searchsorted(ordered, hashes).clip(max=len(ordered) - 1)] == hashes
    return same

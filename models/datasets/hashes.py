"""Hashes of texts, by which the rows of files that do not fit in memory are compared."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
from numpy.typing import NDArray

Hashes = NDArray[np.uint64]
"""64-bit hashes: with ten million prompts of twenty n-grams, one in some thousand data sets has a row that is wrongly
taken for a copy of another."""
NOTHING: Hashes = np.empty(0, np.uint64)


def hashes_of(texts: Sequence[str]) -> Hashes:
    """Return a hash of each text, [texts], not sorted; the same on every machine."""
    return pd.util.hash_array(np.array(texts, dtype=object), categorize=False) if len(texts) else NOTHING


def repeated(hashes: Sequence[Hashes]) -> Hashes:
    """Return the hashes that occur more than once in the pieces, in ascending order."""
    ordered = np.sort(np.concatenate([NOTHING, *hashes]))
    return np.unique(ordered[1:][ordered[1:] == ordered[:-1]])


def within(hashes: Hashes, ordered: Hashes) -> NDArray[np.bool_]:
    """Return whether each hash is in `ordered`, which must be in ascending order, [hashes]."""
    if not len(ordered):
        return np.zeros(len(hashes), dtype=bool)
    same: NDArray[np.bool_] = ordered[np.searchsorted(ordered, hashes).clip(max=len(ordered) - 1)] == hashes
    return same

"""The random points that a completion's tokens are drawn by: by its seed and the token's place, and nothing else."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from models.engine.engine import Ask

TOKENS = 0
"""The points that tokens are drawn by."""
WRITERS = 1
"""Those that say which of two voices writes them."""


def points_of(asks: Sequence[Ask], longest: int, stream: int) -> Tensor:
    """Points in [0, 1), [asks, longest], float64; behind an ask's longest completion they are zero.

    Philox makes the n-th number from key and n (Salmon et al., SC 2011): two keys' numbers have nothing to do with one
    another, however near the keys.

    Args:
        asks: whose seeds are the keys.
        longest: tokens of the longest completion.
        stream: which of a seed's sequences.
    """
    points = np.zeros((len(asks), longest))
    for row, ask in zip(points, asks, strict=True):
        row[: ask.max_tokens] = np.random.Generator(np.random.Philox(key=[ask.seed, stream])).random(ask.max_tokens)
    return torch.from_numpy(points)

"""The random points that a completion's tokens are drawn by; they depend on its seed and the token's place only."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from models.engines.engine import Ask

TOKENS = 0
"""Stream of the points that tokens are drawn by."""
WRITERS = 1
"""Stream of the points that decide which of two voices writes."""


def points_of(asks: Sequence[Ask], longest: int, stream: int) -> Tensor:
    """Return points in [0, 1), [asks, longest], float64; after an ask's longest completion they are zero.

    Philox computes the n-th number from key and n (Salmon et al., SC 2011): the numbers of two keys are independent,
    however close the keys are.

    Args:
        asks: asks whose seeds are the keys.
        longest: tokens of the longest completion.
        stream: number of the stream of each seed.
    """
    points = np.zeros((len(asks), longest))
    for row, ask in zip(points, asks, strict=True):
        row[: ask.max_tokens] = np.random.Generator(np.random.Philox(key=[ask.seed, stream])).random(ask.max_tokens)
    return torch.from_numpy(points)

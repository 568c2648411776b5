"""Random points that a completion's tokens are drawn with; they depend only on its seed and the token's place."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from models.engines.engine import CompletionRequest

TOKENS = 0
"""Stream of the points that tokens are drawn with."""
WRITERS = 1
"""Stream of the points that decide which of two voices writes."""


def points_of(requests: Sequence[CompletionRequest], longest: int, stream: int) -> Tensor:
    """Return random points in [0, 1) for each request, [requests, longest], float64; zero after its `max_tokens`.

    Philox computes the n-th number from key and n (Salmon et al., SC 2011): the numbers of two keys are independent,
    however close the keys are.

    Args:
        requests: their seeds are the keys.
        longest: tokens of the longest completion.
        stream: number of the stream of each seed.
    """
    points = np.zeros((len(requests), longest))
    for row, request in zip(points, requests, strict=True):
        row[: request.max_tokens] = np.random.Generator(np.random.Philox(key=[request.seed, stream])).random(
            request.max_tokens
        )
    return torch.from_numpy(points)

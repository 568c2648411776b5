"""Sums of future values, and whitening over a round's tokens: shared by advantages that are given by token."""

from __future__ import annotations

import torch
from torch import Tensor

from models.learner.packing import PerToken

EPSILON = 1e-4
"""Added to deviations, so that divisions stay finite if the spread is nearly zero."""


def discounted_to_go(values: Tensor, discount: float = 1.0) -> Tensor:
    """Compute the sum of this and all later values at each place, discounted by distance, [tokens] -> [tokens]."""
    if discount == 1.0:
        return values.flip(0).cumsum(0).flip(0)
    returns, ahead = torch.empty_like(values), 0.0
    for place in range(len(values) - 1, -1, -1):
        ahead = float(values[place]) + discount * ahead
        returns[place] = ahead
    return returns


def whitened(tokens: PerToken, counted: PerToken, epsilon: float = EPSILON) -> list[Tensor]:
    """Subtract the mean from `tokens` and divide by the deviation over all counted tokens, [completions] tensors each.

    Args:
        tokens: advantages, [completions] tensors of [tokens of it].
        counted: which of them make the statistics, likewise, bool.
        epsilon: what is added to the deviation.
    """
    chosen = torch.cat([row[mask] for row, mask in zip(tokens, counted, strict=True)])
    if not chosen.numel():
        return list(tokens)
    mean, deviation = chosen.mean(), chosen.std(unbiased=False)
    return [(row - mean) / (deviation + epsilon) for row in tokens]

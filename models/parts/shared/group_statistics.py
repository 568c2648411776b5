"""Sums, means and spreads over the completions of each prompt."""

from __future__ import annotations

import torch
from torch import Tensor


def group_mean(values: Tensor, groups: Tensor) -> Tensor:
    """Return the mean of `values` [completions] over each group, repeated at every completion, [completions].

    Summed in float64: in float32 seven values of 0.1 have a mean that is not 0.1, and a division by their spread would
    turn that rounding error into an advantage.

    Args:
        values: one a completion, [completions].
        groups: number of each completion's group, [completions].
    """
    exact = values.double()
    return (group_sum(exact, groups) / group_sum(torch.ones_like(exact), groups)).to(values.dtype)


def group_sum(values: Tensor, groups: Tensor) -> Tensor:
    """Return the sum of `values` [completions] over each group, repeated at every completion, [completions]."""
    count = int(groups.max()) + 1 if groups.numel() else 0
    return torch.zeros(count, dtype=values.dtype).index_add_(0, groups, values)[groups]


def group_spread(values: Tensor, groups: Tensor) -> Tensor:
    """Return max - min of `values` [completions] over each group, repeated at every completion, [completions]."""
    count = int(groups.max()) + 1 if groups.numel() else 0
    highest = torch.full((count,), -torch.inf, dtype=values.dtype).scatter_reduce_(0, groups, values, "amax")
    lowest = torch.full((count,), torch.inf, dtype=values.dtype).scatter_reduce_(0, groups, values, "amin")
    return (highest - lowest)[groups]

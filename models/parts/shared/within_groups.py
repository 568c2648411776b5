"""All pairs of completions of the same prompt, for objectives that compare each with each."""

from __future__ import annotations

import torch
from torch import Tensor


def same_group(group: Tensor) -> Tensor:
    """Return whether the row and the column answer the same prompt, [completions, completions], bool.

    Args:
        group: number of each completion's group, [completions].
    """
    return group[:, None] == group[None, :]


def pairs_within(group: Tensor) -> Tensor:
    """Return the places of both completions of every pair within a group, each pair once, [pairs, 2], int64.

    Args:
        group: number of each completion's group, [completions].
    """
    return torch.triu(same_group(group), diagonal=1).nonzero()


def mean_over_pairs(values: Tensor, pairs: Tensor, group: Tensor) -> Tensor:
    """Compute the mean of `values` [pairs] over the pairs of each group, [groups]; zero for a group of one completion.

    Gradient flows. `pairs` and `group` are those of `pairs_within`.
    """
    nothing = torch.zeros(int(group.max()) + 1, dtype=values.dtype, device=values.device)
    of_pair = group[pairs[:, 0]]
    count = nothing.index_add(0, of_pair, torch.ones_like(values))
    return nothing.index_add(0, of_pair, values) / count.clamp(min=1)

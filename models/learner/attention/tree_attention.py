"""Attention over rows of trees (see `prefix_tree`), without gradients: a dense product for each size.

A tree's tokens are contiguous, so a call reads a view of the row; nothing is gathered. Scores between branches are
computed and masked: for trees of some hundred tokens that costs less than gathering.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional

from models.learner.attention.packed_attention import capped
from models.learner.attention.prefix_tree import EqualTrees, Forest


class TreeAttention:
    """Attention over one forest, which replaces the layout of a packed row (`packed_attention.RowAttention`)."""

    def __init__(self, forest: Forest) -> None:
        self._forest = forest
        self._biases: dict[tuple[torch.dtype, int | None], Sequence[Tensor]] = {}

    def attend(
        self,
        module: nn.Module,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        scale: float,
        window: int | None,
        softcap: float | None,
    ) -> Tensor:
        """Compute attention, [1, heads, tokens, size] -> [1, tokens, heads, size], with window and soft cap."""
        out = torch.empty((query.shape[2], query.shape[1], value.shape[-1]), dtype=query.dtype, device=query.device)
        for group, bias in zip(self._forest.groups, self._bias(query.dtype, window), strict=True):
            queries, keys, values = (_side_by_side(part, group) for part in (query, key, value))
            if softcap is None:
                part = functional.scaled_dot_product_attention(
                    queries, keys, values, attn_mask=bias, scale=scale, enable_gqa=query.shape[1] != key.shape[1]
                ).transpose(1, 2)
            else:
                part = capped(queries, keys, values, bias, scale, softcap)
            out[group.start : group.start + group.trees * group.size] = part.reshape(-1, *out.shape[1:])
        return out[None]

    def _bias(self, dtype: torch.dtype, window: int | None) -> Sequence[Tensor]:
        """Return the bias of the scores of each group of equal trees, [trees, 1, size, size].

        It is cached for all layers by dtype and window.
        """
        if (dtype, window) not in self._biases:
            self._biases[dtype, window] = [self._bias_of(group, dtype, window) for group in self._forest.groups]
        return self._biases[dtype, window]

    def _bias_of(self, group: EqualTrees, dtype: torch.dtype, window: int | None) -> Tensor:
        seen = group.seen
        if window is not None:
            places = self._forest.positions[group.start : group.start + group.trees * group.size]
            places = places.view(group.trees, 1, group.size)
            seen = seen & (places[..., None] - places[:, :, None] < window)
        return torch.zeros(seen.shape, dtype=dtype, device=seen.device).masked_fill_(~seen, float("-inf"))


def _side_by_side(rows: Tensor, group: EqualTrees) -> Tensor:
    """View [1, heads, tokens, size] as [trees, heads, tokens of a tree, size]."""
    mine = rows[0, :, group.start : group.start + group.trees * group.size]
    return mine.view(len(mine), group.trees, group.size, -1).transpose(0, 1)

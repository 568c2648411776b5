"""Softmax attention of rectangles, forward and backward, as matrix products in blocks that stay in a processor's cache.

The kernel behind `models.learner.two_part_attention`. On a CPU it beats the fused kernel of torch for the shapes of
shared prompts: short completions (backward 6 times as fast at 32 to 64 tokens) and prompts of a few hundred tokens.
It returns the log-sum-exp of every query's scores, so that two of them can be merged, and takes the merged one back.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

BLOCK_ELEMENTS = 2**18
"""Scores of one block: 1 MiB in float32, half a core's second-level cache."""


def attend(query: Tensor, key: Tensor, value: Tensor, scale: float, *, causal: bool) -> tuple[Tensor, Tensor]:
    """Attention outputs, [batch, queries, size], and log-sum-exps of the scores, [batch, queries], at least float32.

    Args:
        query: [batch, queries, size].
        key, value: [batch, keys, size]; as many keys as queries where `causal`.
        scale: of the scores before the softmax.
        causal: whether query i sees keys 0..i only.
    """
    wide = torch.promote_types(query.dtype, torch.float32)
    out = torch.empty_like(query, memory_format=torch.contiguous_format)
    lse = torch.empty(query.shape[:2], dtype=wide, device=query.device)
    for batch, rows in _blocks(query, key):
        keys = slice(0, rows.stop) if causal else slice(None)
        scores = _scores(query[batch, rows], key[batch, keys], scale, rows.start if causal else None)
        largest = scores.amax(-1, keepdim=True).to(wide)
        weights = torch.sub(scores, largest).exp_()
        total = weights.sum(-1, keepdim=True)
        out[batch, rows] = torch.bmm(weights.to(query.dtype), value[batch, keys]).div_(total)
        lse[batch, rows] = (largest + total.log()).squeeze(-1)
    return out, lse


def attend_backward(
    grad: Tensor, query: Tensor, key: Tensor, value: Tensor, delta: Tensor, lse: Tensor, scale: float, *, causal: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of query, key and value, shaped as they are.

    Args:
        grad: of the outputs, [batch, queries, size].
        delta: sum over the size of grad * output, [batch, queries]; the output may be a merged one.
        lse: log-sum-exp of all scores of a query, of other parts too, [batch, queries].
    """
    d_query = torch.empty_like(query, memory_format=torch.contiguous_format)
    d_key = torch.zeros(key.shape, dtype=lse.dtype, device=key.device)
    d_value = torch.zeros_like(d_key)
    for batch, rows in _blocks(query, key):
        keys = slice(0, rows.stop) if causal else slice(None)
        queries, grads = query[batch, rows], grad[batch, rows]
        scores = _scores(queries, key[batch, keys], scale, rows.start if causal else None)
        weights = torch.sub(scores, lse[batch, rows, None]).exp_()
        d_scores = torch.bmm(grads, value[batch, keys].transpose(1, 2)).sub(delta[batch, rows, None])
        d_scores = d_scores.mul_(weights).mul_(scale).to(query.dtype)
        d_value[batch, keys] += torch.bmm(weights.to(query.dtype).transpose(1, 2), grads)
        d_key[batch, keys] += torch.bmm(d_scores.transpose(1, 2), queries)
        d_query[batch, rows] = torch.bmm(d_scores, key[batch, keys])
    return d_query, d_key, d_value


def _scores(query: Tensor, key: Tensor, scale: float, first: int | None) -> Tensor:
    """Scaled scores of a block; with `first`, the place of its first query, what lies ahead of a query is -inf."""
    if first is None:
        nothing = query.new_empty(1, 1, 1)
        return torch.baddbmm(nothing, query, key.transpose(1, 2), beta=0, alpha=scale)
    ahead = torch.full((query.shape[1], key.shape[1]), float("-inf"), dtype=query.dtype, device=query.device)
    return torch.baddbmm(ahead.triu_(first + 1)[None], query, key.transpose(1, 2), alpha=scale)


def _blocks(query: Tensor, key: Tensor) -> Iterator[tuple[slice, slice]]:
    """Stretches of the batch and of the queries whose scores make up one block."""
    batch, queries, keys = query.shape[0], query.shape[1], key.shape[1]
    least = min(batch, torch.get_num_threads())  # the matrix products are shared out by the batch
    together = max(least, BLOCK_ELEMENTS // (queries * keys))
    rows = min(queries, max(32, BLOCK_ELEMENTS // (keys * together)))
    for first in range(0, batch, together):
        for start in range(0, queries, rows):
            yield slice(first, min(batch, first + together)), slice(start, min(queries, start + rows))

"""Softmax attention of rectangles of queries and keys on a CPU, forward and backward, in blocks that fit in the cache.

The kernel of `models.learner.attention.two_part_attention`. On a CPU it is faster than the fused kernel of torch (bf16,
384 tokens, causal: forward and backward 1.4 times as fast). It returns the log-sum-exp of every query's scores, so that
two of them can be merged, and takes the merged one back.

It is fast for three reasons. Exponentials and logarithms are to the base 2, and the change of base is part of the
scores' scale: torch's exp2 is vectorised everywhere, its exp costs three times as much on some CPUs. A half-precision
product is converted to float32 before any other operation: torch's mixed arithmetic costs ten times a cast. And causal
queries are taken in blocks short enough that little is computed ahead of them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import lru_cache

import torch
from torch import Tensor

BLOCK_ELEMENTS = 2**20
"""Scores of one block: 4 MiB in float32; smaller blocks cost more in calls than the cache saves."""
CAUSAL_ROWS = 128
"""Queries of a causal block, whose keys end with its last query: half a square of this side is computed in vain."""
LOG2_E = math.log2(math.e)


def attend(query: Tensor, key: Tensor, value: Tensor, scale: float, *, causal: bool) -> tuple[Tensor, Tensor]:
    """Compute attention: outputs, [batch, queries, size], and the log2-sum-exps of the scores, [batch, queries].

    The log2-sum-exps are float32 or wider.

    Args:
        query: [batch, queries, size].
        key, value: [batch, keys, size]; at least as many keys as queries if `causal`.
        scale: scale of the scores before the softmax.
        causal: whether the last query sees all keys, and every query before it one less.
    """
    wide = torch.promote_types(query.dtype, torch.float32)
    out = torch.empty_like(query, memory_format=torch.contiguous_format)
    lse = torch.empty(query.shape[:2], dtype=wide, device=query.device)
    before = key.shape[1] - query.shape[1]
    for batch, rows in _blocks(query, key, causal):
        keys = slice(0, before + rows.stop) if causal else slice(None)
        seen, values = key[batch, keys].contiguous(), value[batch, keys].contiguous()
        scores = _scores(query[batch, rows].contiguous(), seen, scale, before + rows.start if causal else None)
        largest = scores.amax(-1, keepdim=True)
        weights = scores.sub_(largest).exp2_()
        total = weights.sum(-1, keepdim=True)
        out[batch, rows] = torch.bmm(weights.to(query.dtype), values).to(wide).div_(total)
        lse[batch, rows] = (largest + total.log2()).squeeze(-1)
    return out, lse


def attend_backward(
    grad: Tensor, query: Tensor, key: Tensor, value: Tensor, delta: Tensor, lse: Tensor, scale: float, *, causal: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """Compute the gradients of query, key and value, each in the shape of its input.

    Args:
        grad: gradient of the outputs, [batch, queries, size].
        delta: sum over the size of grad * output, [batch, queries]; the output may be a merged one.
        lse: log2-sum-exp of all scores of a query, of other parts too, [batch, queries].
    """
    d_query = torch.empty_like(query, memory_format=torch.contiguous_format)
    d_key = torch.empty(key.shape, dtype=lse.dtype, device=key.device)
    d_value = torch.empty_like(d_key)
    before = key.shape[1] - query.shape[1]
    for batch, rows in _blocks(query, key, causal):
        keys = slice(0, before + rows.stop) if causal else slice(None)
        queries, grads = query[batch, rows].contiguous(), grad[batch, rows].contiguous()
        seen, values = key[batch, keys].contiguous(), value[batch, keys].contiguous()
        weights = _scores(queries, seen, scale, before + rows.start if causal else None)
        weights = weights.sub_(lse[batch, rows, None]).exp2_()
        d_scores = torch.bmm(grads, values.transpose(1, 2)).to(lse.dtype)
        d_scores = d_scores.sub_(delta[batch, rows, None]).mul_(weights).to(query.dtype)
        of_value = torch.bmm(weights.to(query.dtype).transpose(1, 2), grads).to(lse.dtype)
        of_key = torch.bmm(d_scores.transpose(1, 2), queries).to(lse.dtype).mul_(scale)
        if rows.stop == query.shape[1]:  # the first block of its part of the batch, which sees every key
            d_value[batch], d_key[batch] = of_value, of_key
        else:
            d_value[batch, keys] += of_value
            d_key[batch, keys] += of_key
        d_query[batch, rows] = torch.bmm(d_scores, seen).mul_(scale)
    return d_query, d_key, d_value


def _scores(query: Tensor, key: Tensor, scale: float, first: int | None) -> Tensor:
    """Compute the scaled scores of a block to the base 2, float32 or wider.

    With `first`, the place of the block's first query among the keys, scores of keys ahead of a query are -inf.
    """
    nothing = query.new_empty(1, 1, 1)
    scores = torch.baddbmm(nothing, query, key.transpose(1, 2), beta=0, alpha=scale * LOG2_E)
    scores = scores.to(torch.promote_types(scores.dtype, torch.float32))
    if first is not None:
        scores[:, :, first:].add_(_ahead(query.shape[1], scores.dtype, scores.device))
    return scores


@lru_cache(maxsize=64)
def _ahead(rows: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    """Build a mask with -inf for each key ahead of a query, 0 elsewhere, [rows, rows]."""
    return torch.full((rows, rows), float("-inf"), dtype=dtype, device=device).triu_(1)


def _blocks(query: Tensor, key: Tensor, causal: bool) -> Iterator[tuple[slice, slice]]:
    """Iterate over slices of the batch and the queries whose scores make up one block; the last queries come first."""
    batch, queries, keys = query.shape[0], query.shape[1], key.shape[1]
    least = min(batch, torch.get_num_threads())  # the matrix products are shared out by the batch
    most = min(queries, CAUSAL_ROWS) if causal else queries
    together = max(least, BLOCK_ELEMENTS // (most * keys))
    rows = min(most, max(32, BLOCK_ELEMENTS // (keys * together)))
    for first in range(0, batch, together):
        for stop in range(queries, 0, -rows):
            yield slice(first, min(batch, first + together)), slice(max(0, stop - rows), stop)

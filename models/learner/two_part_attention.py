"""Attention over a packed row in two parts, on the CPU: exact, without a mask and without repeating a prompt.

Every span attends causally to itself; the tokens of completions also attend to their whole prompt. With the
log-sum-exp of each part, the softmax over both together is a weighted sum of the two:

    out = out_self * exp(lse_self - lse) + out_prompt * exp(lse_prompt - lse),   lse = logaddexp(lse_self, lse_prompt)

(to the base 2 throughout), and in the backward pass each part, given the merged `out` and `lse`, yields exactly its
share of the gradients, because the weight of a pair is exp(score - lse) whichever part computes it. (The decomposition
of ring attention, arXiv 2310.01889, and of the shared prefixes of Hydragen, arXiv 2402.05099, which has no backward
pass.)
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from models.learner.block_attention import attend, attend_backward
from models.learner.layout import Bucket, Layout, Prefix, buckets


def two_part_attention(query: Tensor, key: Tensor, value: Tensor, layout: Layout, scale: float) -> Tensor:
    """Attention of a packed row, [1, heads, tokens, size] -> [1, tokens, heads, size]; gradient flows.

    Args:
        query: [1, heads, tokens, size].
        key, value: [1, key heads, tokens, size]; each serves heads / key heads query heads.
        scale: of the scores before the softmax.
    """
    groups = query.shape[1] // key.shape[1]
    if groups > 1:
        key, value = key.repeat_interleave(groups, dim=1), value.repeat_interleave(groups, dim=1)
    out: Tensor = _TwoPart.apply(  # type: ignore[no-untyped-call]
        query[0].transpose(0, 1), key[0].transpose(0, 1), value[0].transpose(0, 1), layout, scale
    )
    return out[None]


class _TwoPart(torch.autograd.Function):
    """All tensors [tokens, heads, size]; log-sum-exps [tokens, heads]."""

    @staticmethod
    def forward(ctx: Any, query: Tensor, key: Tensor, value: Tensor, layout: Layout, scale: float) -> Tensor:
        """See `two_part_attention`."""
        out = torch.empty(query.shape, dtype=query.dtype, device=query.device)
        lse = torch.empty(query.shape[:2], dtype=torch.promote_types(query.dtype, torch.float32), device=query.device)
        for bucket in buckets(layout, query.device):
            queries, keys, values = (_take(tensor, bucket) for tensor in (query, key, value))
            part, sums = attend(queries, keys, values, scale, causal=True)
            _put(out, part, bucket)
            _put(lse, sums, bucket)
        for inside, prompt in map(_stretches, layout.prefixes):
            part, sums = attend(
                _heads_first(query[inside]), _heads_first(key[prompt]), _heads_first(value[prompt]), scale, causal=False
            )
            other = sums.T
            merged = torch.logaddexp2(lse[inside], other)
            mine = torch.exp2(lse[inside] - merged).unsqueeze(-1)
            theirs = torch.exp2(other - merged).unsqueeze(-1)
            out[inside] = (out[inside] * mine).addcmul_(part.transpose(0, 1).to(mine.dtype), theirs)
            lse[inside] = merged
        ctx.save_for_backward(query, key, value, out, lse)
        ctx.layout, ctx.scale = layout, scale
        return out

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        """Gradients of query, key and value."""
        query, key, value, out, lse = ctx.saved_tensors
        grad = gradients[0]
        delta = torch.mul(grad, out).sum(-1, dtype=lse.dtype)
        grads = tuple(
            torch.empty(tensor.shape, dtype=tensor.dtype, device=tensor.device) for tensor in (query, key, value)
        )
        for bucket in buckets(ctx.layout, query.device):
            queries, keys, values = (_take(tensor, bucket) for tensor in (query, key, value))
            parts = attend_backward(
                _take(grad, bucket, silent=True),
                queries,
                keys,
                values,
                _take(delta[..., None], bucket, silent=True).squeeze(-1),
                _take(lse[..., None], bucket).squeeze(-1),
                ctx.scale,
                causal=True,
            )
            for total, part in zip(grads, parts, strict=True):
                _put(total, part, bucket)
        for inside, prompt in map(_stretches, ctx.layout.prefixes):
            parts = attend_backward(
                _heads_first(grad[inside]),
                _heads_first(query[inside]),
                _heads_first(key[prompt]),
                _heads_first(value[prompt]),
                delta[inside].T,
                lse[inside].T,
                ctx.scale,
                causal=False,
            )
            for total, part, where in zip(grads, parts, (inside, prompt, prompt), strict=True):
                total[where] += part.transpose(0, 1)
        return (*grads, None, None)


def _stretches(prefix: Prefix) -> tuple[slice, slice]:
    """Where the completions stand, and where their prompt."""
    return slice(prefix.first, prefix.stop), slice(prefix.start, prefix.end)


def _heads_first(rows: Tensor) -> Tensor:
    """[tokens, heads, size] -> [heads, tokens, size], a view."""
    return rows.transpose(0, 1)


def _take(rows: Tensor, bucket: Bucket, *, silent: bool = False) -> Tensor:
    """[tokens, heads, size] -> [spans * heads, longest, size]; `silent` puts zeros where a span has no token."""
    spans, longest = bucket.places.shape
    heads, size = rows.shape[1:]
    taken = rows.index_select(0, bucket.places.flatten())
    if silent and bucket.real is not None:
        taken *= bucket.real[:, None, None]
    return taken.view(spans, longest, heads, size).transpose(1, 2).reshape(spans * heads, longest, size)


def _put(total: Tensor, part: Tensor, bucket: Bucket) -> None:
    """Write a bucket's [spans * heads, longest, ...] to its places in [tokens, heads, ...]."""
    rows = part.view(bucket.places.shape[0], -1, *part.shape[1:]).transpose(1, 2).flatten(0, 1)
    places = bucket.places.flatten()
    if bucket.kept is not None:
        rows, places = rows.index_select(0, bucket.kept), places.index_select(0, bucket.kept)
    total.index_copy_(0, places, rows.to(total.dtype))

"""Attention over a packed row in two parts, on the CPU: exact, without a mask and without repeating a prompt.

Every span attends causally to itself; the tokens of completions also attend to their whole prompt. With the
log-sum-exp of each part, the softmax over both together is a weighted sum of the two:

    out = out_self * exp(lse_self - lse) + out_prompt * exp(lse_prompt - lse),   lse = logaddexp(lse_self, lse_prompt)

and in the backward pass each part's kernel, given the merged `out` and `lse`, returns exactly its share of the
gradients, because the weight of a pair is exp(score - lse) whichever part computes it. (The decomposition of ring
attention, arXiv 2310.01889, and of the shared prefixes of Hydragen, arXiv 2402.05099, which has no backward pass.)
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from models.learner.layout import Bucket, Layout, buckets

_FORWARD = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
_BACKWARD = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward


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
    """All tensors [tokens, heads, size]; the log-sum-exp [tokens, heads]."""

    @staticmethod
    def forward(ctx: Any, query: Tensor, key: Tensor, value: Tensor, layout: Layout, scale: float) -> Tensor:
        """See `two_part_attention`."""
        tokens, heads, _ = query.shape
        out = torch.empty(query.shape, dtype=query.dtype, device=query.device)
        lse = torch.empty(tokens, heads, dtype=torch.promote_types(query.dtype, torch.float32), device=query.device)
        for bucket in buckets(layout, query.device):
            part, sums = _FORWARD(*_take((query, key, value), bucket), 0.0, True, scale=scale)
            _put(out, part, bucket)
            _put(lse, sums, bucket)
        for prefix in layout.prefixes:
            inside = slice(prefix.first, prefix.stop)
            prompt = slice(prefix.start, prefix.end)
            part, sums = _FORWARD(
                _heads_first(query[inside]), _heads_first(key[prompt]), _heads_first(value[prompt]), scale=scale
            )
            part, sums = part[0].transpose(0, 1), sums[0].transpose(0, 1)
            merged = torch.logaddexp(lse[inside], sums)
            mine = torch.exp(lse[inside] - merged).unsqueeze(-1)
            out[inside] = (out[inside] * mine + part * torch.exp(sums - merged).unsqueeze(-1)).to(out.dtype)
            lse[inside] = merged
        ctx.save_for_backward(query, key, value, out, lse)
        ctx.layout, ctx.scale = layout, scale
        return out

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        """Gradients of query, key and value."""
        query, key, value, out, lse = ctx.saved_tensors
        grad = gradients[0].contiguous()
        found = tuple(torch.zeros_like(tensor, memory_format=torch.contiguous_format) for tensor in (query, key, value))
        for bucket in buckets(ctx.layout, query.device):
            taken = _take((grad, query, key, value, out), bucket, silent=1)
            sums = lse[bucket.places].transpose(1, 2)
            parts = _BACKWARD(*taken, sums, 0.0, True, scale=ctx.scale)
            for total, part in zip(found, parts, strict=True):
                _put(total, part, bucket)
        for prefix in ctx.layout.prefixes:
            inside = slice(prefix.first, prefix.stop)
            prompt = slice(prefix.start, prefix.end)
            parts = _BACKWARD(
                _heads_first(grad[inside]),
                _heads_first(query[inside]),
                _heads_first(key[prompt]),
                _heads_first(value[prompt]),
                _heads_first(out[inside]),
                lse[inside].transpose(0, 1)[None],
                0.0,
                False,
                scale=ctx.scale,
            )
            for total, part, where in zip(found, parts, (inside, prompt, prompt), strict=True):
                total[where] += part[0].transpose(0, 1)
        return (*found, None, None)


def _heads_first(rows: Tensor) -> Tensor:
    """[tokens, heads, size] -> [1, heads, tokens, size], a view."""
    return rows.transpose(0, 1)[None]


def _take(tensors: tuple[Tensor, ...], bucket: Bucket, silent: int = 0) -> list[Tensor]:
    """Each [tokens, heads, size] as [spans, heads, longest, size]; in the first `silent`, what is no token is zero."""
    spans, longest = bucket.places.shape
    taken = []
    for number, tensor in enumerate(tensors):
        rows = tensor[bucket.places.flatten()]
        if number < silent and bucket.real is not None:
            rows = rows * bucket.real[:, None, None]
        taken.append(rows.view(spans, longest, *tensor.shape[1:]).transpose(1, 2))
    return taken


def _put(total: Tensor, part: Tensor, bucket: Bucket) -> None:
    """Write a bucket's [spans, heads, longest, ...] to its places in [tokens, heads, ...]."""
    rows = part.transpose(1, 2).flatten(0, 1)
    places = bucket.places.flatten()
    if bucket.real is not None:
        rows, places = rows[bucket.real], places[bucket.real]
    total[places] = rows.to(total.dtype)

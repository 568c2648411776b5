"""Exact attention over a packed row on the CPU, without a mask of tokens x tokens.

Every span attends causally to itself, after the prompt that it continues. A short prompt is read along with each of
its spans; a long one is a rectangle of its own (`models.learner.attention.rectangles`). With the log-sum-exp of each of
the two parts, the softmax over both together is a weighted sum of the two:

    out = out_self * exp(lse_self - lse) + out_prompt * exp(lse_prompt - lse),   lse = logaddexp(lse_self, lse_prompt)

(to the base 2 throughout), and in the backward pass each part, given the merged `out` and `lse`, yields exactly its
share of the gradients, because the weight of a pair is exp(score - lse) whichever part computes it. (The decomposition
of ring attention, arXiv 2310.01889, and of the shared prefixes of Hydragen, arXiv 2402.05099, which has no backward
pass.)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from models.learner.attention.block_attention import attend, attend_backward
from models.learner.attention.rectangles import rectangles
from models.learner.layout import Layout


def two_part_attention(query: Tensor, key: Tensor, value: Tensor, layout: Layout, scale: float) -> Tensor:
    """Compute attention over a packed row, [1, heads, tokens, size] -> [1, tokens, heads, size]; gradient flows.

    Args:
        query: [1, heads, tokens, size].
        key, value: [1, key heads, tokens, size]; each serves heads / key heads query heads.
        scale: scale of the scores before the softmax.
    """
    out: Tensor = _TwoPart.apply(  # type: ignore[no-untyped-call]
        query[0].transpose(0, 1), key[0].transpose(0, 1), value[0].transpose(0, 1), layout, scale
    )
    return out[None]


class _TwoPart(torch.autograd.Function):
    """Queries and outputs [tokens, heads, size], keys and values [tokens, key heads, size]."""

    @staticmethod
    def forward(ctx: Any, query: Tensor, key: Tensor, value: Tensor, layout: Layout, scale: float) -> Tensor:
        """See `two_part_attention`."""
        row = rectangles(layout, query.shape[1], key.shape[1], query.device)
        queries, keys, values = map(_flat, (query, key, value))
        outs, sums = [], []
        for spans in row.triangles:
            batch = spans.spans * query.shape[1]
            part, lse = attend(
                _take(queries, spans.queries, batch),
                _take(keys, spans.keys, batch),
                _take(values, spans.keys, batch),
                scale,
                causal=True,
            )
            outs.append(part)
            sums.append(lse)
        out, lse = _back(outs, row.queries), _back([lse[..., None] for lse in sums], row.queries).squeeze(-1)
        for prompt in row.apart:
            part, other = attend(
                _take(queries, prompt.queries, key.shape[1]),
                _take(keys, prompt.keys, key.shape[1]),
                _take(values, prompt.keys, key.shape[1]),
                scale,
                causal=False,
            )
            other = other.flatten().index_select(0, prompt.places)
            theirs = part.flatten(0, 1).index_select(0, prompt.places).to(lse.dtype)
            merged = torch.logaddexp2(lse[prompt.inside], other)
            mine = torch.exp2(lse[prompt.inside] - merged).unsqueeze(-1)
            share = torch.exp2(other - merged).unsqueeze(-1)
            out[prompt.inside] = out[prompt.inside].to(lse.dtype).mul_(mine).addcmul_(theirs, share)
            lse[prompt.inside] = merged
        ctx.save_for_backward(query, key, value, out, lse)
        ctx.layout, ctx.scale = layout, scale
        return out.view(query.shape)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        """Compute gradients of query, key and value."""
        query, key, value, out, lse = ctx.saved_tensors
        heads, key_heads = query.shape[1], key.shape[1]
        row = rectangles(ctx.layout, heads, key_heads, query.device)
        grad, queries, keys, values = map(_flat, (gradients[0], query, key, value))
        delta = torch.mul(grad, out).sum(-1, dtype=lse.dtype)
        parts: tuple[list[Tensor], ...] = ([], [], [])
        for spans in row.triangles:
            batch = spans.spans * heads
            of_queries, of_keys, of_values = attend_backward(
                _take(grad, spans.queries, batch, spans.real),
                _take(queries, spans.queries, batch),
                _take(keys, spans.keys, batch),
                _take(values, spans.keys, batch),
                _take(delta[:, None], spans.queries, batch, spans.real).squeeze(-1),
                _take(lse[:, None], spans.queries, batch).squeeze(-1),
                ctx.scale,
                causal=True,
            )
            parts[0].append(of_queries)
            for part, copies in zip(parts[1:], (of_keys, of_values), strict=True):
                part.append(_once(copies, spans.spans, key_heads))
        of_query = _back(parts[0], row.queries)
        of_key, of_value = (_back(part, row.keys).view(key.shape) for part in parts[1:])
        for number, spans in enumerate(row.triangles):
            if spans.before:
                for total, part in zip((of_key, of_value), parts[1:], strict=True):
                    copies = part[number].view(spans.spans, key_heads, -1, key.shape[2])[:, :, : spans.before]
                    total[spans.prompt] += copies.sum(0).transpose(0, 1)
        for prompt in row.apart:
            of_queries, of_keys, of_values = attend_backward(
                _take(grad, prompt.queries, key_heads),
                _take(queries, prompt.queries, key_heads),
                _take(keys, prompt.keys, key_heads),
                _take(values, prompt.keys, key_heads),
                _take(delta[:, None], prompt.queries, key_heads).squeeze(-1),
                _take(lse[:, None], prompt.queries, key_heads).squeeze(-1),
                ctx.scale,
                causal=False,
            )
            of_query[prompt.inside] += of_queries.flatten(0, 1).index_select(0, prompt.places)
            for total, of_prompt in ((of_key, of_keys), (of_value, of_values)):
                total[prompt.prompt] += of_prompt.transpose(0, 1)
        return of_query.view(query.shape), of_key.to(key.dtype), of_value.to(value.dtype), None, None


def _flat(rows: Tensor) -> Tensor:
    """Flatten [tokens, heads, size] -> [tokens * heads, size]."""
    return rows.reshape(-1, rows.shape[-1])


def _take(rows: Tensor, numbers: Tensor, batch: int, real: Tensor | None = None) -> Tensor:
    """Take rows of [tokens * heads, size] as [batch, rows of it, size]; zeros for rows that are not `real`."""
    taken = rows.index_select(0, numbers)
    if real is not None:
        taken *= real[:, None]
    return taken.view(batch, -1, rows.shape[-1])


def _once(copies: Tensor, spans: int, key_heads: int) -> Tensor:
    """Sum the gradients of all heads that share a key, [spans * heads, keys, size] -> [spans * key heads, ...]."""
    shared = copies.shape[0] // (spans * key_heads)
    return copies if shared == 1 else copies.view(-1, shared, *copies.shape[1:]).sum(1)


def _back(parts: Sequence[Tensor], places: Tensor) -> Tensor:
    """Put rectangles, [batch, rows, size] each, back into the row that they are from, [tokens * heads, size]."""
    every = [part.flatten(0, 1) for part in parts]
    return (every[0] if len(every) == 1 else torch.cat(every)).index_select(0, places)

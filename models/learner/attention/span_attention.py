"""Attention over a packed row on a GPU, as one operation of torch, which compiled layers include whole.

By spans: the queries of a span are its own tokens, its keys those of all that it continues and its own; a causal mask
aligned to the last key is then exactly the layout, and one flash-attention call reads all spans. Keys and values of a
shared prompt are gathered once for each span, again for the backward pass, and the gradients of their copies are summed
in float32, in a fixed order.

By rectangles, if spans are long: cuDNN's kernel, twice as fast on a Hopper GPU, reads each span causally, and the
continuations of a prompt against that prompt. Their softmaxes are merged by their log-sum-exps, forward and backward,
as `models.learner.attention.two_part_attention` does it on a CPU.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from models.learner.attention.span_kernels import (
    UNSEEN,
    Gradients,
    dense_backward,
    dense_forward,
    spans_backward,
    spans_forward,
)
from models.learner.attention.span_tables import RowTables, rounded_up

BY_SPANS, BY_RECTANGLES = 0, 1


def span_attention(
    query: Tensor, key: Tensor, value: Tensor, tables: RowTables, scale: float, window: int | None
) -> Tensor:
    """Compute attention over a packed row, [1, heads, tokens, size] -> [1, tokens, heads, size]; gradient flows.

    Args:
        query: [1, heads, tokens, size]; on CUDA bfloat16 or float16.
        key, value: [1, key heads, tokens, size].
        tables: tables of the row.
        window: a token sees this many tokens at most, itself included; None for all before it.
    """
    assert tables.by_spans is not None, "only called where there is a kernel"
    route, route_tables = BY_SPANS, tables.by_spans
    if window is None and tables.by_rectangles is not None:
        route, route_tables = BY_RECTANGLES, tables.by_rectangles
    out, _ = attention_op(
        query[0].transpose(0, 1).contiguous(),
        key[0].transpose(0, 1).contiguous(),
        value[0].transpose(0, 1).contiguous(),
        route_tables,
        route,
        scale,
        window or 0,
    )
    output: Tensor = out[None]
    return output


@torch.library.custom_op("rewardflow::span_attention", mutates_args=())
def attention_op(
    query: Tensor, key: Tensor, value: Tensor, tables: Sequence[Tensor], route: int, scale: float, window: int
) -> tuple[Tensor, Tensor]:
    """Compute attention by one route: outputs [tokens, heads, size] and log-sum-exps of the scores [heads, tokens]."""
    if route == BY_RECTANGLES:
        return _rectangles_forward(query, key, value, tables, scale)
    query_ends, key_ends, gathered, _, _, longest = tables
    out, lse = spans_forward(
        query, _gathered(key, gathered), _gathered(value, gathered), query_ends, key_ends, _pair(longest), scale, window
    )
    return out.contiguous(), lse.contiguous()


@torch.library.custom_op("rewardflow::span_attention_backward", mutates_args=())
def backward_op(
    grad: Tensor, query: Tensor, key: Tensor, value: Tensor, out: Tensor, lse: Tensor, tables: Sequence[Tensor],
    route: int, scale: float, window: int,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """Compute the gradients of query, key and value."""
    grad = grad.contiguous()
    if route == BY_RECTANGLES:
        return _rectangles_backward(grad, query, key, value, out, lse, tables, scale)
    query_ends, key_ends, gathered, copies, first, longest = tables
    d_query, d_key, d_value = spans_backward(
        grad, query, _gathered(key, gathered), _gathered(value, gathered), out, lse, query_ends, key_ends,
        _pair(longest), scale, window,
    )  # fmt: skip
    if gathered.numel():
        d_key, d_value = (_summed(part, copies, first) for part in (d_key, d_value))
    return d_query.contiguous(), d_key.contiguous(), d_value.contiguous()


@attention_op.register_fake
def _attention_shapes(
    query: Tensor, key: Tensor, value: Tensor, tables: Sequence[Tensor], route: int, scale: float, window: int
) -> tuple[Tensor, Tensor]:
    wide = torch.promote_types(query.dtype, torch.float32)
    return torch.empty_like(query), query.new_empty(query.shape[1], query.shape[0], dtype=wide)


@backward_op.register_fake
def _backward_shapes(
    grad: Tensor, query: Tensor, key: Tensor, value: Tensor, out: Tensor, lse: Tensor, tables: Sequence[Tensor],
    route: int, scale: float, window: int,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    return torch.empty_like(query), torch.empty_like(key), torch.empty_like(value)


def _keep(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    query, key, value, tables, ctx.route, ctx.scale, ctx.window = inputs
    ctx.save_for_backward(query, key, value, *output, *tables)


def _backward(ctx: Any, grad: Tensor, _: Tensor | None) -> tuple[Any, ...]:
    query, key, value, out, lse, *tables = ctx.saved_tensors
    gradients = backward_op(grad, query, key, value, out, lse, tables, ctx.route, ctx.scale, ctx.window)
    return *gradients, [None] * len(tables), None, None, None


attention_op.register_autograd(_backward, setup_context=_keep)


def _pair(longest: Tensor) -> tuple[int, int]:
    queries, keys = longest.tolist()
    return queries, keys


def _gathered(values: Tensor, places: Tensor) -> Tensor:
    return values.index_select(0, places) if places.numel() else values


def _summed(grad: Tensor, copies: Tensor, first: Tensor) -> Tensor:
    """Sum the gradients of the copies of each token's key or value, [keys, ...] -> [tokens, ...], in one kernel."""
    sums = functional.embedding_bag(copies, grad.flatten(1), first, mode="sum")
    summed: Tensor = sums.unflatten(1, grad.shape[1:])
    return summed


def _rectangles_forward(
    query: Tensor, key: Tensor, value: Tensor, tables: Sequence[Tensor], scale: float
) -> tuple[Tensor, Tensor]:
    out = torch.empty_like(query)
    lse = query.new_empty(query.shape[1], query.shape[0], dtype=torch.promote_types(query.dtype, torch.float32))
    for start, end, along, stop in tables[0].tolist():
        queries, keys, values = (_piece(part, start, end, along, stop) for part in (query, key, value))
        piece, sums = dense_forward(queries, keys, values, scale, True)
        inside = slice(stop - along, stop - along + end - start)
        out[start:end], lse[:, start:end] = piece[inside], sums[:, inside]
    for start, end, first, last in tables[1].tolist():
        queries = _filled(query[first:last], rounded_up(last - first))
        piece, sums = dense_forward(queries, key[start:end], value[start:end], scale, False)
        piece, sums, before = piece[: last - first], sums[:, : last - first], lse[:, first:last].clone()
        merged_lse = torch.logaddexp(before, sums)
        shares = [(part - merged_lse).exp().T[..., None] for part in (before, sums)]
        out[first:last] = (out[first:last] * shares[0] + piece * shares[1]).to(out.dtype)
        lse[:, first:last] = merged_lse
    return out, lse


def _rectangles_backward(
    grad: Tensor, query: Tensor, key: Tensor, value: Tensor, out: Tensor, lse: Tensor, tables: Sequence[Tensor],
    scale: float,
) -> Gradients:  # fmt: skip
    d_query, d_key, d_value = torch.empty_like(query), torch.empty_like(key), torch.empty_like(value)
    read_along: dict[tuple[int, int], list[Tensor]] = {}
    for start, end, along, stop in tables[0].tolist():
        before, tokens = stop - along, end - start
        queries, keys, values = (_piece(part, start, end, along, stop) for part in (query, key, value))
        after = queries.shape[0] - before - tokens
        gradients = dense_backward(
            functional.pad(grad[start:end], (0, 0, 0, 0, before, after)),
            queries,
            keys,
            values,
            functional.pad(out[start:end], (0, 0, 0, 0, before, after)),
            functional.pad(lse[:, start:end], (before, after), value=UNSEEN),
            scale,
            True,
        )
        for whole, part in zip((d_query, d_key, d_value), gradients, strict=True):
            whole[start:end] = part[before : before + tokens]
        if before:
            read_along.setdefault((along, stop), []).append(torch.stack([part[:before] for part in gradients[1:]]))
    for (along, stop), copies in read_along.items():
        summed_copies = torch.stack(copies).sum(0, dtype=lse.dtype)
        for whole, part in zip((d_key, d_value), summed_copies, strict=True):
            whole[along:stop] = (whole[along:stop] + part).to(whole.dtype)
    for start, end, first, last in tables[1].tolist():
        tokens, filled = last - first, rounded_up(last - first)
        gradients = dense_backward(
            _filled(grad[first:last], filled), _filled(query[first:last], filled), key[start:end], value[start:end],
            _filled(out[first:last], filled), functional.pad(lse[:, first:last], (0, filled - tokens), value=UNSEEN),
            scale, False,
        )  # fmt: skip
        d_query[first:last] += gradients[0][:tokens]
        d_key[start:end] += gradients[1]
        d_value[start:end] += gradients[2]
    return d_query, d_key, d_value


def _piece(values: Tensor, start: int, end: int, along: int, stop: int) -> Tensor:
    """Return a span after the part of its prompt that it reads along, padded to the length of a rectangle."""
    part = torch.cat([values[along:stop], values[start:end]]) if stop > along else values[start:end]
    return _filled(part, rounded_up(part.shape[0]))


def _filled(values: Tensor, tokens: int) -> Tensor:
    return functional.pad(values, (0, 0, 0, 0, 0, tokens - values.shape[0])) if tokens > values.shape[0] else values

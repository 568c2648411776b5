"""Attention kernels that also return log-sum-exps: flash attention and cuDNN on a GPU, plain products elsewhere.

Each forward function returns outputs and the log-sum-exp of every query's scores. Each backward function takes outputs
and log-sum-exps that may be those of several calls together, and returns the call's own share of the gradients. The
plain products are the reference of the tests; they are slow.
"""

from __future__ import annotations

from itertools import pairwise

import torch
from torch import Tensor

Gradients = tuple[Tensor, Tensor, Tensor]
UNSEEN = 1e30
"""Log-sum-exp of a query whose output is not read: all of its weights are zero."""


def spans_forward(
    query: Tensor, key: Tensor, value: Tensor, query_ends: Tensor, key_ends: Tensor, longest: tuple[int, int],
    scale: float, window: int,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Compute causal attention within each span, whose last query is aligned with its last key.

    Args:
        query: [queries, heads, size].
        key, value: [keys, key heads, size].
        query_ends, key_ends: end of each span's queries and keys, after a zero, [spans + 1], int32.
        longest: most queries and most keys of a span.
        scale: scale of the scores.
        window: keys that a query sees at most, its own included; zero for all before it.

    Returns:
        Outputs [queries, heads, size] and log-sum-exps [heads, queries], float32 at least.
    """
    if query.device.type == "cuda":
        out, lse, *_ = torch.ops.aten._flash_attention_forward(
            query, key, value, query_ends, key_ends, *longest, 0.0, not window, False, scale=scale, **_sides(window)
        )
        return out, lse
    pairs = [
        _plain_forward(query[a:b], key[c:d], value[c:d], _seen(b - a, d - c, window, query.device), scale)
        for (a, b), (c, d) in zip(_stretches(query_ends), _stretches(key_ends), strict=True)
    ]
    return torch.cat([out for out, _ in pairs]), torch.cat([lse for _, lse in pairs], dim=1)


def spans_backward(
    grad: Tensor, query: Tensor, key: Tensor, value: Tensor, out: Tensor, lse: Tensor, query_ends: Tensor,
    key_ends: Tensor, longest: tuple[int, int], scale: float, window: int,
) -> Gradients:  # fmt: skip
    """Compute the gradients of query, key and value of `spans_forward`."""
    if query.device.type == "cuda":
        unused = torch.zeros(2, dtype=torch.uint64, device=query.device)  # state of a dropout that is not used
        made: Gradients = torch.ops.aten._flash_attention_backward(
            grad, query, key, value, out, lse, query_ends, key_ends, *longest, 0.0, not window, unused,
            torch.empty(0, device=query.device), scale=scale, **_sides(window),
        )  # fmt: skip
        return made
    parts = [
        _plain_backward(
            grad[a:b], query[a:b], key[c:d], value[c:d], out[a:b], lse[:, a:b],
            _seen(b - a, d - c, window, query.device), scale,
        )
        for (a, b), (c, d) in zip(_stretches(query_ends), _stretches(key_ends), strict=True)
    ]  # fmt: skip
    d_query, d_key, d_value = (torch.cat(part) for part in zip(*parts, strict=True))
    return d_query, d_key, d_value


def dense_forward(query: Tensor, key: Tensor, value: Tensor, scale: float, causal: bool) -> tuple[Tensor, Tensor]:
    """Compute attention of queries to all keys, or causally if there are as many queries as keys.

    Args:
        query: [queries, heads, size].
        key, value: [keys, key heads, size].

    Returns:
        Outputs [queries, heads, size] and log-sum-exps [heads, queries], float32 at least.
    """
    if query.device.type == "cuda":
        out, lse, *_ = torch.ops.aten._scaled_dot_product_cudnn_attention(
            *map(_batched, (query, key, value)), None, True, 0.0, causal, False, scale=scale
        )
        return out[0].transpose(0, 1), lse.reshape(query.shape[1], query.shape[0])
    return _plain_forward(query, key, value, _all_or_causal(query, key, causal), scale)


def dense_backward(
    grad: Tensor, query: Tensor, key: Tensor, value: Tensor, out: Tensor, lse: Tensor, scale: float, causal: bool
) -> Gradients:
    """Compute the gradients of query, key and value of `dense_forward`."""
    if query.device.type == "cuda":
        unused = torch.zeros((), dtype=torch.int64, device=query.device)  # state of a dropout that is not used
        made = torch.ops.aten._scaled_dot_product_cudnn_attention_backward(
            *map(_batched, (grad, query, key, value, out)), lse.contiguous().view(1, *lse.shape, 1), unused, unused,
            None, None, None, query.shape[0], key.shape[0], 0.0, causal, scale=scale,
        )  # fmt: skip
        d_query, d_key, d_value = (part[0].transpose(0, 1) for part in made)
        return d_query, d_key, d_value
    return _plain_backward(grad, query, key, value, out, lse, _all_or_causal(query, key, causal), scale)


def _batched(values: Tensor) -> Tensor:
    """Transpose [tokens, heads, size] -> [1, heads, tokens, size]."""
    return values.transpose(0, 1)[None]


def _sides(window: int) -> dict[str, int]:
    return {"window_size_left": window - 1 if window else -1, "window_size_right": 0}


def _stretches(ends: Tensor) -> list[tuple[int, int]]:
    places = ends.tolist()
    return list(pairwise(places))


def _seen(queries: int, keys: int, window: int, device: torch.device) -> Tensor:
    """Mark the keys that each query sees, [queries, keys]; the last query is at the last key."""
    ahead = torch.arange(keys, device=device) - torch.arange(keys - queries, keys, device=device)[:, None]
    return (ahead <= 0) & (ahead > -window) if window else ahead <= 0


def _all_or_causal(query: Tensor, key: Tensor, causal: bool) -> Tensor:
    shape = query.shape[0], key.shape[0]
    return _seen(*shape, 0, query.device) if causal else torch.ones(shape, dtype=torch.bool, device=query.device)


def _scores(query: Tensor, key: Tensor, seen: Tensor, scale: float) -> Tensor:
    """Compute scores in float32 at least, [heads, queries, keys]; minus infinity if a query does not see a key."""
    wide = torch.promote_types(query.dtype, torch.float32)
    groups = query.shape[1] // key.shape[1]
    scores = torch.einsum("qhd,khd->hqk", query.to(wide), key.to(wide).repeat_interleave(groups, 1)) * scale
    return scores.masked_fill(~seen, float("-inf"))


def _plain_forward(query: Tensor, key: Tensor, value: Tensor, seen: Tensor, scale: float) -> tuple[Tensor, Tensor]:
    scores = _scores(query, key, seen, scale)
    lse = scores.logsumexp(-1)
    groups = query.shape[1] // key.shape[1]
    weights = (scores - lse[..., None]).exp()
    out = torch.einsum("hqk,khd->qhd", weights, value.to(weights.dtype).repeat_interleave(groups, 1))
    return out.to(query.dtype), lse


def _plain_backward(
    grad: Tensor, query: Tensor, key: Tensor, value: Tensor, out: Tensor, lse: Tensor, seen: Tensor, scale: float
) -> Gradients:
    groups = query.shape[1] // key.shape[1]
    weights = (_scores(query, key, seen, scale) - lse[..., None]).exp()
    grad, wide = grad.to(weights.dtype), weights.dtype
    d_value = torch.einsum("hqk,qhd->khd", weights, grad)
    d_weights = torch.einsum("qhd,khd->hqk", grad, value.to(wide).repeat_interleave(groups, 1))
    delta = (grad * out.to(wide)).sum(-1).T
    d_scores = weights * (d_weights - delta[..., None]) * scale
    d_query = torch.einsum("hqk,khd->qhd", d_scores, key.to(wide).repeat_interleave(groups, 1))
    d_key = torch.einsum("hqk,qhd->khd", d_scores, query.to(wide))
    together = (part.unflatten(1, (-1, groups)).sum(2).to(key.dtype) for part in (d_key, d_value))
    return d_query.to(query.dtype), *together  # type: ignore[return-value]

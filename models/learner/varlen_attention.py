"""Attention over a packed row on CUDA: one flash-attention call over spans of different lengths.

The queries of a completion are its own tokens, its keys the prompt's and its own, or those of all that it continues; a
causal mask aligned to the last key is then exactly the layout. Keys and values of a shared prompt are gathered once for
each completion - memory traffic, not arithmetic - and their gradients are summed by the gather's own backward.
"""

from __future__ import annotations

import inspect
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from models.learner.layout import Layout


@lru_cache(maxsize=1)
def _varlen_attn() -> Any:
    """Torch's function, or None; it brings torch's compiler with it, so it is imported where it is used."""
    try:
        from torch.nn.attention.varlen import varlen_attn
    except ImportError:  # torch before 2.10
        return None
    return varlen_attn


def has_varlen() -> bool:
    """Whether this torch has flash attention over spans, with causal masks by window."""
    function = _varlen_attn()
    return function is not None and "window_size" in _options_of(function)


@lru_cache(maxsize=4)
def _options_of(function: Any) -> frozenset[str]:
    """Names of what a function takes; every layer of every row asks."""
    return frozenset(inspect.signature(function).parameters)


def varlen_attention(
    query: Tensor, key: Tensor, value: Tensor, layout: Layout, scale: float, window: int | None
) -> Tensor:
    """Attention of a packed row, [1, heads, tokens, size] -> [1, tokens, heads, size]; gradient flows.

    Args:
        query: [1, heads, tokens, size], bfloat16 or float16.
        key, value: [1, key heads, tokens, size].
        window: a token sees this many tokens at most, itself included; None for all before it.
    """
    varlen_attn = _varlen_attn()
    assert varlen_attn is not None
    gathered, query_ends, key_ends, longest_query, longest_key = _bounds(layout, query.device)
    options: dict[str, Any] = {}
    # The kernel lets several heads share one of the keys. Torch before 2.12 asks no leave for it and has no such flag.
    if query.shape[1] != key.shape[1] and "enable_gqa" in _options_of(varlen_attn):
        options["enable_gqa"] = True
    out: Tensor = varlen_attn(
        query[0].transpose(0, 1).contiguous(),
        key[0].transpose(0, 1).index_select(0, gathered),
        value[0].transpose(0, 1).index_select(0, gathered),
        query_ends,
        key_ends,
        longest_query,
        longest_key,
        scale=scale,
        window_size=(-1 if window is None else window - 1, 0),
        **options,
    )
    return out[None]


@lru_cache(maxsize=8)
def _bounds(layout: Layout, device: torch.device) -> tuple[Tensor, Tensor, Tensor, int, int]:
    """Places of all spans' keys in the row, where each span's queries and keys end, and the longest of each."""
    places, queries, keys = [], [0], [0]
    for span, path, before in zip(layout.spans, layout.paths, layout.before, strict=True):
        places += [torch.arange(prefix.start, prefix.end) for prefix in path]
        places.append(torch.arange(span.start, span.start + span.length))
        queries.append(queries[-1] + span.length)
        keys.append(keys[-1] + before + span.length)
    return (
        torch.cat(places).to(device),
        torch.tensor(queries, dtype=torch.int32, device=device),
        torch.tensor(keys, dtype=torch.int32, device=device),
        max(span.length for span in layout.spans),
        layout.longest,
    )

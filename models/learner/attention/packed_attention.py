"""Attention over packed rows with shared prompts, as an implementation of transformers' attention interface.

A model that uses the implementation `NAME` passes its queries, keys and values to `packed_attention`; no model code is
changed. Called without a layout (generation, a plain forward pass) it is transformers' sdpa. With one, the fastest of
three routes that can take it is used; all three compute the same sums:

    two-part     CPU: every span attends causally to itself and to a copy of a short prompt; to a long one on its own,
                 and the two parts are merged by their log-sum-exp. No mask over the row.
    spans        CUDA, half precision: one operation that reads span by span (see `span_attention`).
    dense        anything else (a soft cap on the scores, a window shorter than a row, float32 on CUDA): sdpa with the
                 layout as a mask.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

import torch
from torch import Tensor, nn
from torch.nn import functional

from models.base.errors import UserError
from models.learner.attention.span_attention import span_attention
from models.learner.attention.span_tables import RowTables, tables_of
from models.learner.attention.two_part_attention import two_part_attention
from models.learner.layout import Layout, allowed

if TYPE_CHECKING:
    from transformers import PreTrainedModel

NAME = "rewardflow_packed"
HALVES = (torch.bfloat16, torch.float16)


_apart: dict[str, Any] = {}
"""The attention function that torch's compiler leaves uncompiled; empty until layers are compiled."""


class RowAttention(Protocol):
    """Interface of an object that computes attention for a packed row itself, such as a cache during generation."""

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
        """Compute attention of one layer, `module`, [1, heads, tokens, size] -> [1, tokens, heads, size]."""
        ...


def packed_attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    dropout: float = 0.0,
    packed: RowTables | RowAttention | None = None,
    sliding_window: int | None = None,
    softcap: float | None = None,
    **others: Any,
) -> tuple[Tensor, None]:
    """Compute attention for an attention module of transformers, which calls this function.

    Args:
        query: [1, heads, tokens, head size].
        key, value: [1, key heads, tokens, head size].
        packed: the row's layout and tables, or the object that attends instead; None for an ordinary batch, which
            `attention_mask` describes.
        scaling: scaling of the scores before the softmax; None for 1 / sqrt(head size).
        sliding_window: tokens that a token sees at most; None for all.
        softcap: scores are capped to c * tanh(score / c).

    Returns:
        [1, tokens, heads, head size], and None for the weights, which are not computed.

    Raises:
        UserError: the model has attention dropout or attention sinks, which packed rows do not support.
    """
    if others.get("s_aux") is not None:
        raise UserError("the model has attention sinks, which packed rows do not take into their softmax")
    if packed is None:
        if softcap is not None:
            others["softcap"] = softcap
            return capped(query, key, value, _bias(attention_mask, query, key), scaling, softcap), None
        from transformers.integrations.sdpa_attention import sdpa_attention_forward

        out: tuple[Tensor, None] = sdpa_attention_forward(
            module, query, key, value, attention_mask, dropout=dropout, scaling=scaling, **others
        )
        return out
    if dropout > 0.0:
        raise UserError("the model's attention_dropout is not zero: set attention_dropout to 0 in its config.json")
    if (half := _autocast_dtype(query)) is not None:
        # As sdpa does under autocast; queries and keys are rotated in float32, values are not.
        query, key, value = query.to(half), key.to(half), value.to(half)
    scale = query.shape[-1] ** -0.5 if scaling is None else scaling
    if not isinstance(packed, RowTables):
        return packed.attend(module, query, key, value, scale, sliding_window, softcap), None
    return attend_packed(query, key, value, packed, scale, sliding_window, softcap), None


def compiled_attention(
    module: nn.Module, query: Tensor, key: Tensor, value: Tensor, attention_mask: Tensor | None, **options: Any
) -> tuple[Tensor, None]:
    """Compute attention in compiled layers: over spans inside the compiled graph, by any other route outside it.

    Args:
        module, query, key, value, attention_mask, options: see `packed_attention`.
    """
    packed = options.get("packed")
    dtype = _autocast_dtype(query) or query.dtype
    plain = not options.get("dropout") and options.get("softcap") is None and options.get("s_aux") is None
    if plain and dtype in HALVES and isinstance(packed, RowTables) and packed.by_spans is not None:
        scaling = options.get("scaling")
        scale = query.shape[-1] ** -0.5 if scaling is None else scaling
        window = options.get("sliding_window")
        return attend_packed(query.to(dtype), key.to(dtype), value.to(dtype), packed, scale, window, None), None
    made: tuple[Tensor, None] = _apart["attention"](module, query, key, value, attention_mask, **options)
    return made


def _autocast_dtype(query: Tensor) -> torch.dtype | None:
    """Return the dtype that autocast computes attention in; None without autocast."""
    kind = query.device.type
    return torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else None


def attend_packed(
    query: Tensor, key: Tensor, value: Tensor, row: RowTables, scale: float, window: int | None, softcap: float | None
) -> Tensor:
    """Compute attention over a packed row by the fastest route that supports it, [1, tokens, heads, head size].

    Args:
        query: [1, heads, tokens, head size].
        key, value: [1, key heads, tokens, head size].
        row: its layout and tables.
        scale: scale of the scores before the softmax.
        window: tokens that a token sees at most; None for all.
        softcap: scores are capped to c * tanh(score / c).
    """
    if window is not None and window >= row.longest:
        window = None
    if softcap is None and row.by_spans is not None and query.dtype in HALVES:
        return span_attention(query, key, value, row, scale, window)
    layout = row.layout
    if softcap is not None:
        seen = allowed(layout, query.device, window)
        bias = torch.zeros_like(seen, dtype=torch.float32).masked_fill(~seen, float("-inf"))
        return capped(query, key, value, bias, scale, softcap)
    if query.device.type == "cpu" and window is None and value.shape[-1] == query.shape[-1]:
        return two_part_attention(query, key, value, layout, scale)
    groups = query.shape[1] // key.shape[1]
    dense = functional.scaled_dot_product_attention(
        query,
        key.repeat_interleave(groups, dim=1),
        value.repeat_interleave(groups, dim=1),
        attn_mask=allowed(layout, query.device, window),
        scale=scale,
    )
    return dense.transpose(1, 2).contiguous()


def _bias(mask: Tensor | None, query: Tensor, key: Tensor) -> Tensor:
    """Return an additive mask, broadcastable to [rows, heads, queries, keys]; causal if none is given."""
    if mask is None:
        mask = torch.ones(query.shape[2], key.shape[2], dtype=torch.bool, device=query.device)
        mask = mask.tril(diagonal=key.shape[2] - query.shape[2])
    if mask.dtype != torch.bool:
        return mask
    return torch.zeros_like(mask, dtype=torch.float32).masked_fill(~mask, torch.finfo(torch.float32).min)


def capped(query: Tensor, key: Tensor, value: Tensor, bias: Tensor, scaling: float | None, softcap: float) -> Tensor:
    """Compute attention with soft-capped scores (Gemma 2), in plain operations: no fused kernel caps scores."""
    groups = query.shape[1] // key.shape[1]
    scale = query.shape[-1] ** -0.5 if scaling is None else scaling
    scores = query @ key.repeat_interleave(groups, dim=1).transpose(2, 3) * scale
    scores = softcap * torch.tanh(scores / softcap) + bias
    wide = torch.promote_types(scores.dtype, torch.float32)
    weights = torch.softmax(scores, dim=-1, dtype=wide).to(query.dtype)
    return (weights @ value.repeat_interleave(groups, dim=1)).transpose(1, 2).contiguous()


def register_packed_attention(*, compiled: bool = False) -> None:
    """Register packed attention with transformers under `NAME`, once in a process.

    Args:
        compiled: whether compiled layers use it from now on, in any model of the process.
    """
    from transformers import AttentionInterface, AttentionMaskInterface
    from transformers.masking_utils import sdpa_mask
    from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

    if NAME not in ALL_ATTENTION_FUNCTIONS:
        AttentionInterface.register(NAME, packed_attention)
        AttentionMaskInterface.register(NAME, sdpa_mask)
    if compiled:
        # One function, or compiled layers would be compiled again.
        _apart.setdefault("attention", torch.compiler.disable(packed_attention))
        AttentionInterface.register(NAME, compiled_attention)


def read_packed(
    backbone: PreTrainedModel,
    ids: Tensor,
    positions: Tensor,
    layout: Layout | RowAttention,
    embeddings: Tensor | None = None,
    **options: Any,
) -> Tensor:
    """Compute the hidden states of a packed row, [tokens, hidden].

    Args:
        backbone: a decoder without its output projection, which `use_packed_attention` has been called on.
        ids: [tokens].
        positions: [tokens], or [axes, tokens] for a decoder whose positions have axes.
        embeddings: vectors that the decoder reads instead of the embeddings of `ids`, [tokens, hidden].
        options: other arguments of this decoder.
    """
    # A mask of four dimensions is passed through unread: without one, transformers would build tokens x tokens.
    unread = torch.empty(1, 1, 1, 1, device=ids.device)
    packed = tables_of(layout, ids.device) if isinstance(layout, Layout) else layout
    read: dict[str, Tensor] = {"input_ids": ids[None]} if embeddings is None else {"inputs_embeds": embeddings[None]}
    output = backbone(
        **read,
        position_ids=positions[None] if positions.ndim == 1 else positions[:, None],
        attention_mask=unread,
        use_cache=False,
        packed=packed,
        **options,
    )
    hidden: Tensor = output.last_hidden_state
    return hidden[0]

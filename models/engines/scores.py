"""Scores of a query against stored keys: the scale and softcap of a decoder, and the stored dtype."""

from __future__ import annotations

import torch
from torch import Tensor


def bent(scores: Tensor, scale: float, softcap: float | None) -> Tensor:
    """Return products of queries and keys as inputs of the softmax, of any shape, in float32 at least.

    Args:
        scores: the products; changed in place if they have that precision already.
        softcap: the bound that they approach (Gemma 2); None: no bound.
    """
    wide = scores.to(torch.promote_types(scores.dtype, torch.float32)).mul_(scale)
    return wide if softcap is None else softcap * torch.tanh(wide / softcap)


def kept_dtype(rows: Tensor) -> torch.dtype:
    """Return the data type of stored keys and values of completions: on a CPU float32 at least, because products of a
    single query are not faster in bfloat16 there, but often much slower."""
    return torch.promote_types(rows.dtype, torch.float32) if rows.device.type == "cpu" else rows.dtype

"""Attention scores during decoding: their scale and soft cap, and the data type of stored keys and values."""

from __future__ import annotations

import torch
from torch import Tensor


def scaled_and_capped(scores: Tensor, scale: float, softcap: float | None) -> Tensor:
    """Apply scale and soft cap to products of queries and keys, of any shape, in float32 or wider.

    Args:
        scores: the products; changed in place if they have that precision already.
        softcap: the bound that they approach (Gemma 2); None: no bound.
    """
    wide = scores.to(torch.promote_types(scores.dtype, torch.float32)).mul_(scale)
    return wide if softcap is None else softcap * torch.tanh(wide / softcap)


def kept_dtype(rows: Tensor) -> torch.dtype:
    """Return the data type in which keys and values of completions are stored: on a CPU float32 or wider.

    Products of a single query are not faster in bfloat16 on a CPU, but often much slower.
    """
    return torch.promote_types(rows.dtype, torch.float32) if rows.device.type == "cpu" else rows.dtype

"""Scores of a query against keys that are kept: the scale and bound of a decoder, and the dtype that is kept."""

from __future__ import annotations

import torch
from torch import Tensor


def bent(scores: Tensor, scale: float, softcap: float | None) -> Tensor:
    """Products of queries and keys as they go into the softmax, of any shape, in float32 at least.

    Args:
        scores: the products; changed in place where they are as wide already.
        softcap: the bound that they approach (Gemma 2), None: none.
    """
    wide = scores.to(torch.promote_types(scores.dtype, torch.float32)).mul_(scale)
    return wide if softcap is None else softcap * torch.tanh(wide / softcap)


def kept_dtype(rows: Tensor) -> torch.dtype:
    """What keys and values of completions are kept in: on a CPU float32 at least, for products of a single query are no
    faster in bfloat16 there, but often much slower."""
    return torch.promote_types(rows.dtype, torch.float32) if rows.device.type == "cpu" else rows.dtype

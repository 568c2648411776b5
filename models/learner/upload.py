"""Copies from host memory to a device that do not block the host.

A copy from ordinary memory to a GPU makes the host wait for the copy and for all earlier work of the GPU. A copy from
pinned memory does not; torch keeps that memory until the copy is done. Values are converted and joined on the CPU
first.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor


def to_device(values: Tensor, place: torch.device, dtype: torch.dtype | None = None) -> Tensor:
    """Copy `values` to a device, bit-identical to `values.to(place, dtype)`; values that are there are not copied.

    Args:
        dtype: dtype of the result; None: that of `values`.
    """
    dtype = dtype or values.dtype
    if place.type != "cuda" or values.device.type != "cpu":
        return values.to(place, dtype)
    return values.to(dtype).contiguous().pin_memory().to(place, non_blocking=True)


def all_to_device(values: Sequence[Tensor], place: torch.device) -> list[Tensor]:
    """Copy flat tensors of one dtype from the CPU to a device in one transfer, [tensors] of [length of it]."""
    if place.type == "cpu" or not values:
        return list(values)
    return list(to_device(torch.cat(list(values)), place).split([len(each) for each in values]))

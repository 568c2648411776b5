"""A model that is read occasionally: its weights stay in host memory and are copied to the device when needed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn


class Offloaded:
    """A frozen model whose weights are on `device` only while it is read, and in host memory otherwise.

    The weights are restored to the bit. A reading costs the copy of all weights over the bus, once: 25 GB/s and more
    from pinned memory, so a model of 8B parameters in bfloat16 takes under a second. Buffers, which are small, stay.

    Args:
        model: it must not be changed; its weights leave `device` at once.
        device: device on which it is read.
    """

    def __init__(self, model: nn.Module, device: torch.device) -> None:
        self._device = device
        self._weights = list(model.parameters())  # tied ones once
        self._waiting = [_in_host_memory(weight.detach()) for weight in self._weights]
        self._readers = 0
        self._put_back()

    @contextmanager
    def fetched(self) -> Iterator[None]:
        """Keep the weights on the device inside the context; nested readers share them."""
        if not self._readers:
            for weight, waiting in zip(self._weights, self._waiting, strict=True):
                weight.data = torch.empty_like(waiting, device=self._device).copy_(waiting, non_blocking=True)
        self._readers += 1
        try:
            yield
        finally:
            self._readers -= 1
            if not self._readers:
                self._put_back()

    def _put_back(self) -> None:
        for weight, waiting in zip(self._weights, self._waiting, strict=True):
            weight.data = waiting


def _in_host_memory(weight: Tensor) -> Tensor:
    """Copy a weight to host memory, pinned if there is a GPU to copy it to."""
    kept = torch.empty_like(weight, device="cpu", pin_memory=torch.cuda.is_available())
    return kept.copy_(weight)

"""Store of the weights of the last sync, for engines that are restarted and for several that share them."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor


class WeightStore:
    """Weights of the last sync on the CPU, in the engines' precision, so that the learner may change its own.

    Args:
        dtype: data type of the engines; loading the stored weights needs no more rounding.
    """

    def __init__(self, dtype: torch.dtype) -> None:
        self.dtype = dtype
        self.version = 0
        """Number of the last sync, as its sender counts; 0 before the first."""
        self.weights: dict[str, Tensor] = {}

    def keep(self, weights: Iterable[tuple[str, Tensor]], version: int) -> None:
        """Copy weights into the tensors of the last sync, so that nothing is allocated again each round.

        One tensor of `weights` is taken at a time: tensors that are made on demand, such as merged adapters, are never
        all in memory.
        """
        names = set()
        for name, tensor in weights:
            names.add(name)
            kept = self.weights.get(name)
            if kept is None or kept.shape != tensor.shape:
                dtype = self.dtype if tensor.is_floating_point() else tensor.dtype
                self.weights[name] = kept = torch.empty(tensor.shape, dtype=dtype)
            kept.copy_(tensor.detach())
        for name in self.weights.keys() - names:
            del self.weights[name]
        self.version = version

    @property
    def filled(self) -> bool:
        """Whether weights are stored."""
        return bool(self.weights)

    def given(self) -> Iterable[tuple[str, Tensor]]:
        """Return the stored names and tensors, for `Engine.load`; nothing before the first sync."""
        return self.weights.items()

    def forget(self) -> None:
        """Drop the stored weights."""
        self.weights = {}

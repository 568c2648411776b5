"""The weights that were handed over last, for engines that are started anew, and for several that take the same."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor


class Kept:
    """Weights on the CPU in the engines' precision, so that the learner may go on changing its own.

    Args:
        dtype: what the engines compute in; whoever loads what is kept rounds no more.
    """

    def __init__(self, dtype: torch.dtype) -> None:
        self.dtype = dtype
        self.version = 0
        """Of the last hand-over, as its giver counts; 0 before the first."""
        self.weights: dict[str, Tensor] = {}

    def keep(self, weights: Iterable[tuple[str, Tensor]], version: int) -> None:
        """Copy into the tensors of the last hand-over, so that nothing is allocated again each round.

        Of `weights` one tensor is taken at a time: what is made on the way, as merged adapters are, is never there
        whole.
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
        """Whether there was a hand-over."""
        return bool(self.weights)

    def given(self) -> Iterable[tuple[str, Tensor]]:
        """Names and tensors, for `Engine.load`; nothing before the first hand-over."""
        return self.weights.items()

    def forget(self) -> None:
        """Free the memory."""
        self.weights = {}

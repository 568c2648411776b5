"""The reference stays what the policy was when reinforcement learning began."""

from __future__ import annotations

from typing import ClassVar

from torch import nn

from models.parts import part


@part("reference", "frozen")
class Frozen:
    """The warm-started policy, unchanged."""

    needed: ClassVar[bool] = True
    moves: ClassVar[bool] = False
    resets_optimiser: ClassVar[bool] = False

    def follow(self, reference: nn.Module, policy: nn.Module, round_number: int) -> bool:
        """Never moves."""
        return False


@part("reference", "none")
class NoReference:
    """No reference is kept; objectives see `reference = None`."""

    needed: ClassVar[bool] = False
    moves: ClassVar[bool] = False
    resets_optimiser: ClassVar[bool] = False

    def follow(self, reference: nn.Module, policy: nn.Module, round_number: int) -> bool:
        """There is nothing to move."""
        return False

"""The slot `reference`: the model that the policy is compared with."""

from __future__ import annotations

from torch import nn

from models.method.slot_part import SlotPart


class Reference(SlotPart):
    """Base class of references: how the model that the policy is compared with is kept and changed."""

    slot = "reference"

    @property
    def kept(self) -> bool:
        """Whether the method has a reference; if not, none is kept in memory."""
        return True

    @property
    def moves(self) -> bool:
        """Whether it ever changes; if so, it is a separate copy of the policy even with LoRA."""
        return False

    @property
    def resets_optimiser(self) -> bool:
        """Whether the optimiser's moments are cleared when the reference has changed."""
        return False

    @property
    def offload(self) -> bool:
        """Whether its weights are on the learner's device only while they are read."""
        return False

    def follow(self, reference: nn.Module, policy: nn.Module, round_number: int) -> bool:
        """Update the reference after a round, in place. Returns whether it changed."""
        return False

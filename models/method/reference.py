"""The slot `reference`: the model that the policy is compared with."""

from __future__ import annotations

from torch import nn

from models.method.slot_part import SlotPart


class Reference(SlotPart):
    """The model that the policy is compared with."""

    slot = "reference"

    @property
    def kept(self) -> bool:
        """False if the method has no reference: none is kept in memory."""
        return True

    @property
    def moves(self) -> bool:
        """Whether it ever changes: a reference that does is a separate copy, also with an adapter."""
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
        """Move the reference after a round, in place. Returns whether it changed."""
        return False

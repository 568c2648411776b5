"""The reference becomes the policy as it stands, every so many rounds: a new start of the trust region.

`hard_reset`: the optimiser forgets its moments too (ProRL, arXiv 2505.24864; paper 72).
`previous_round`: the optimiser goes on; for methods in iterations (SPIN, DNO, INPO).
"""

from __future__ import annotations

import torch
from torch import nn

from models.bounds import Positive
from models.loop.slots import Reference
from models.parts import part
from models.policy.weights import weights_of_both


@torch.no_grad()
def become(reference: nn.Module, policy: nn.Module) -> None:
    """Copy the weights that the policy computes with into the reference."""
    for old, new in weights_of_both(reference, policy):
        old.copy_(new)


@part("hard_reset")
class HardReset(Reference):
    """Every so many rounds the reference becomes the policy, and the optimiser begins anew."""

    moves = True
    resets_optimiser = True
    every: Positive = 20
    """Rounds between two resets."""

    def follow(self, reference: nn.Module, policy: nn.Module, round_number: int) -> bool:
        """Reset after rounds every, 2 every, ..."""
        if (round_number + 1) % self.every:
            return False
        become(reference, policy)
        return True


@part("previous_round")
class PreviousRound(Reference):
    """The policy as it was some rounds ago; the optimiser goes on."""

    moves = True
    every: Positive = 1
    """Rounds of one iteration, after which the reference becomes the policy."""

    def follow(self, reference: nn.Module, policy: nn.Module, round_number: int) -> bool:
        """Follow after rounds every, 2 every, ..."""
        if (round_number + 1) % self.every:
            return False
        become(reference, policy)
        return True

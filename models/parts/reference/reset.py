"""The reference becomes the current policy after a fixed number of rounds: the trust region starts again.

`hard_reset`: the optimiser's moments are reset too (ProRL, arXiv 2505.24864; paper 72).
`previous_round`: the optimiser continues; for iterative methods (SPIN, DNO, INPO).
"""

from __future__ import annotations

import torch
from torch import nn

from models.base.bounds import Positive
from models.method.reference import Reference
from models.method.registry import part
from models.policies.weights import weights_of_both


@torch.no_grad()
def become(reference: nn.Module, policy: nn.Module) -> None:
    """Copy the weights that the policy computes with into the reference."""
    for old, new in weights_of_both(reference, policy):
        old.copy_(new)


@part("hard_reset")
class HardReset(Reference):
    """After a fixed number of rounds the reference becomes the policy, and the optimiser is reset."""

    moves = True
    resets_optimiser = True
    every: Positive = 20
    """Rounds between two resets."""

    def follow(self, reference: nn.Module, policy: nn.Module, round_number: int) -> bool:
        """Reset the reference after rounds every, 2 every, ..."""
        if (round_number + 1) % self.every:
            return False
        become(reference, policy)
        return True


@part("previous_round")
class PreviousRound(Reference):
    """The policy at the beginning of the current iteration of `every` rounds; the optimiser continues."""

    moves = True
    every: Positive = 1
    """Rounds per iteration, after which the reference becomes the policy."""

    def follow(self, reference: nn.Module, policy: nn.Module, round_number: int) -> bool:
        """Update the reference after rounds every, 2 every, ..."""
        if (round_number + 1) % self.every:
            return False
        become(reference, policy)
        return True

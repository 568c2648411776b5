"""The reference follows the policy as an exponential moving average of its weights (T1, arXiv 2501.11651; paper 89).

    reference <- decay * reference + (1 - decay) * policy      after each `every` rounds

After n updates it is decay^n * start + (1 - decay) * sum_k decay^(n - k) * policy_k. It is the average of the weights
that the policy computes with: with an adapter W = base + B A is averaged and never A and B by themselves, because the
product of two averages is not the average of the products.
"""

from __future__ import annotations

import torch
from torch import nn

from models.base.bounds import Positive, Share
from models.method.reference import Reference
from models.method.registry import part
from models.policies.weights import weights_of_both


@part("moving_average")
class MovingAverage(Reference):
    """Exponential moving average of the policy's weights."""

    moves = True
    decay: Share = 0.95
    """Share of the reference that an update keeps; 1 keeps it frozen, 0 makes it the current policy."""
    every: Positive = 1
    """Rounds between two updates."""

    @torch.no_grad()
    def follow(self, reference: nn.Module, policy: nn.Module, round_number: int) -> bool:
        """Move the reference towards the policy."""
        if (round_number + 1) % self.every:
            return False
        for old, new in weights_of_both(reference, policy):
            old.lerp_(new.to(old), 1.0 - self.decay)
        return True

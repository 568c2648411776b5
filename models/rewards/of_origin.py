"""What a completion is worth by where it comes from: a preference's label, or the standing of a data source.

The better answer of a preference is worth 1 and the worse 0 without any model; demonstrations of known quality can be
weighed against each other (OpenChat's C-RLFT, arXiv 2309.11235).
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from models.bounds import Number
from models.loop.rollout import Rollout
from models.loop.slots import Reward
from models.loop.world import World
from models.parts import part


@part("origin")
class OfOrigin(Reward):
    """A value for each origin."""

    chosen: Number = 1.0
    """Of the better answer of a preference."""
    rejected: Number = 0.0
    """Of the worse answer."""
    demonstration: Number = 1.0
    """Of an answer that the data hold to be imitated."""
    flawed: Number | None = None
    """Of a demonstration that the data call flawed; None: as any demonstration."""
    other: Number = 0.0
    """Of what an engine drew."""

    def __call__(self, world: World, rollouts: Sequence[Rollout]) -> Tensor:
        """Values, [completions]."""
        return torch.tensor([self._value(rollout) for rollout in rollouts])

    def _value(self, rollout: Rollout) -> float:
        if rollout.origin == "demonstration" and rollout.flaw and self.flawed is not None:
            return self.flawed
        known = {"chosen": self.chosen, "rejected": self.rejected, "demonstration": self.demonstration}
        return known.get(rollout.origin, self.other)

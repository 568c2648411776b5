"""What a completion is worth by where it comes from: a preference's label, or the standing of a data source.

The better answer of a preference is worth 1 and the worse 0 without any model; demonstrations of known quality can be
weighed against each other (OpenChat's C-RLFT, arXiv 2309.11235).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import torch
from torch import Tensor

from models.loop.rollout import Rollout
from models.loop.slots import World
from models.parts import part


@part("reward", "origin")
class OfOrigin:
    """A value for each origin."""

    needs_reward_model: ClassVar[bool] = False
    weight: float = 1.0
    label: str = "origin"
    chosen: float = 1.0
    rejected: float = 0.0
    demonstration: float = 1.0
    flawed: float | None = None
    """Of a demonstration that the data call flawed; None: as any demonstration."""
    other: float = 0.0
    """Of what an engine drew."""

    def __call__(self, world: World, rollouts: Sequence[Rollout]) -> Tensor:
        """Values, [completions]."""
        return torch.tensor([self._value(rollout) for rollout in rollouts])

    def _value(self, rollout: Rollout) -> float:
        if rollout.origin == "demonstration" and rollout.flaw and self.flawed is not None:
            return self.flawed
        known = {"chosen": self.chosen, "rejected": self.rejected, "demonstration": self.demonstration}
        return known.get(rollout.origin, self.other)

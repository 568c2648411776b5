"""Reward of a completion by its origin: a preference's label, or the quality of a data source (C-RLFT, 2309.11235).

The better answer of a preference is worth 1 and the worse 0 without any model; demonstrations of known quality can get
different rewards (OpenChat's C-RLFT, arXiv 2309.11235).
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from models.base.bounds import Number
from models.method.registry import part
from models.method.resources import RunResources
from models.method.reward import Reward
from models.method.rollout import Rollout


@part("origin")
class OfOrigin(Reward):
    """Reward that depends only on the origin of a completion."""

    chosen: Number = 1.0
    """Reward of the better answer of a preference."""
    rejected: Number = 0.0
    """Reward of the worse answer of a preference."""
    demonstration: Number = 1.0
    """Reward of a demonstration."""
    flawed: Number | None = None
    """Reward of a demonstration with a recorded flaw; None: as any demonstration."""
    other: Number = 0.0
    """Reward of a completion drawn by an engine."""

    def __call__(self, resources: RunResources, rollouts: Sequence[Rollout]) -> Tensor:
        """Return values, [completions]."""
        return torch.tensor([self._value(rollout) for rollout in rollouts])

    def _value(self, rollout: Rollout) -> float:
        if rollout.source.origin == "demonstration" and rollout.source.flaw and self.flawed is not None:
            return self.flawed
        known = {"chosen": self.chosen, "rejected": self.rejected, "demonstration": self.demonstration}
        return known.get(rollout.source.origin, self.other)

"""Preferences with noise of a known rate: the label of some pairs says the opposite of what the data say.

For experiments with methods that bear noisy labels. Which pairs are flipped depends on the problem's id and the seed
alone, not on the round, on the order or on chance: an epoch later the same pairs are wrong, as in real noisy data.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import torch
from torch import Tensor

from models.bounds import Seed, Share
from models.loop.rollout import Rollout
from models.loop.slots import Reward
from models.loop.world import World
from models.parts import part


def is_flipped(problem: str, share: float, seed: int) -> bool:
    """Whether the label of the problem with this id is flipped; over many ids a share of them is."""
    drawn = int.from_bytes(hashlib.sha256(f"{seed}:{problem}".encode()).digest()[:8], "big")
    return drawn < share * 2**64


@part("flipped_labels")
class FlippedLabels(Reward):
    """One for the better answer of a preference, zero for all else; flipped, one for the worse."""

    share: Share = 0.3
    """Share of problems whose preference is turned round."""
    seed: Seed = 0
    """Another seed flips others."""

    def __call__(self, world: World, rollouts: Sequence[Rollout]) -> Tensor:
        """Zero or one for each completion, [completions]."""
        return torch.tensor([self._value(rollout) for rollout in rollouts])

    def _value(self, rollout: Rollout) -> float:
        better = "rejected" if is_flipped(rollout.problem.id, self.share, self.seed) else "chosen"
        return float(rollout.origin == better)

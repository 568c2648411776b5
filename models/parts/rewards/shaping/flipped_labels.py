"""Preferences with label noise of a known rate: the labels of some pairs are flipped.

For experiments with methods that are robust to noisy labels. The choice of flipped pairs depends only on the problem's
id and the seed, and not on the round, the order or chance: the same pairs are wrong in every epoch, as in real noisy
data.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import torch
from torch import Tensor

from models.base.bounds import Seed, Share
from models.method.registry import part
from models.method.resources import RunResources
from models.method.reward import Reward
from models.method.rollout import Rollout


def is_flipped(problem: str, share: float, seed: int) -> bool:
    """Return whether the label of the problem with this id is flipped; over many ids the flipped share is `share`."""
    drawn = int.from_bytes(hashlib.sha256(f"{seed}:{problem}".encode()).digest()[:8], "big")
    return drawn < share * 2**64


@part("flipped_labels")
class FlippedLabels(Reward):
    """One for the better answer of a preference, zero otherwise; if flipped, one for the worse."""

    share: Share = 0.3
    """Share of problems whose preference is flipped."""
    seed: Seed = 0
    """Seed of the choice of flipped pairs."""

    def __call__(self, resources: RunResources, rollouts: Sequence[Rollout]) -> Tensor:
        """Return zero or one for each completion, [completions]."""
        return torch.tensor([self._value(rollout) for rollout in rollouts])

    def _value(self, rollout: Rollout) -> float:
        better = "rejected" if is_flipped(rollout.problem.id, self.share, self.seed) else "chosen"
        return float(rollout.source.origin == better)

"""A verdict that needs no skill, for smoke runs: right or wrong by the completion's hash.

The untrained policy of a smoke run never answers right, so a method that learns from verdicts would have no token to
train on. This reward calls about half of all completions right, the same ones in every run.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import torch
from torch import Tensor

from models.method.registry import part
from models.method.resources import RunResources
from models.method.reward import Reward
from models.method.rollout import Rollout


@part("coin")
class Coin(Reward):
    """One for a completion whose hash is even, zero for one whose hash is odd. For smoke runs; it means nothing."""

    def __call__(self, resources: RunResources, rollouts: Sequence[Rollout]) -> Tensor:
        """Return zero or one for each completion, [completions]."""
        digests = [hashlib.sha256(repr(rollout.written_ids).encode()).digest() for rollout in rollouts]
        return torch.tensor([float(digest[0] % 2 == 0) for digest in digests])

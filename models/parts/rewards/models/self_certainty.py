"""Self-certainty: the divergence of the policy's next-token distribution from the uniform one (Shop-R1, paper 260).

    value = mean over written tokens of KL(U || pi) = -(1 / V) sum over the vocabulary of log(V pi(v))

It rewards rationales that cannot be verified, in addition to the reward of a verified action (Shop-R1, paper 260, arXiv
2507.17842). It is zero for a uniform distribution and grows without bound if large parts of the vocabulary become
unlikely, so its weight should be small relative to the reward of the action.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from models.base.bounds import Number
from models.learner.distribution import MODEL_DISTRIBUTION
from models.method.registry import part
from models.method.resources import RunResources
from models.method.reward import Reward
from models.method.rollout import Rollout
from models.parts.shared.next_token import at_written_tokens


@part("self_certainty")
class SelfCertainty(Reward):
    """Distance of the policy's next-token distributions from uniform, at its own tokens only."""

    reads_learner = True
    weight: Number = 0.01

    def __call__(self, resources: RunResources, rollouts: Sequence[Rollout]) -> Tensor:
        """Return the mean over the tokens that the policy wrote, [completions], nats."""
        rows = at_written_tokens(
            resources, rollouts, MODEL_DISTRIBUTION, lambda block: -block.mean(-1) - math.log(block.shape[-1])
        )
        return torch.stack([row.double().mean().cpu() for row in rows]).float()

"""How certain the policy is of what it writes: the divergence of its next-token distribution from the uniform one.

    value = mean over written tokens of KL(U || pi) = -(1 / V) sum over the vocabulary of log(V pi(v))

Rationales that nobody can verify are rewarded by it beside a verified action (Shop-R1, paper 260, arXiv 2507.17842). It
is zero for a uniform distribution and grows without a bound where whole parts of the vocabulary become unlikely, so it
is worth little beside a reward of what was done.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from models.bounds import Number
from models.formulas.next_token import at_written_tokens
from models.learner.distribution import AS_IT_IS
from models.loop.rollout import Rollout
from models.loop.slots import Reward
from models.loop.world import World
from models.parts import part


@part("self_certainty")
class SelfCertainty(Reward):
    """How far the policy's choices are from chance. No environment's token counts."""

    reads_learner = True
    weight: Number = 0.01

    def __call__(self, world: World, rollouts: Sequence[Rollout]) -> Tensor:
        """Mean over the tokens that the policy wrote, [completions], nats."""
        rows = at_written_tokens(world, rollouts, AS_IT_IS, lambda block: -block.mean(-1) - math.log(block.shape[-1]))
        return torch.stack([row.double().mean().cpu() for row in rows]).float()

"""Right and shorter than the policy's own right answers is better, the more so the easier the prompt (paper 241).

    value_i = p^patience * clip((m - length_i) / m, -1, 1)   of a right answer; 0 of a wrong one

p is the share of right answers in the group, m their mean length. A policy is its own measure of how long a solution
has to be: no budget is set, and what it never solves is not shortened. On a prompt that it solves rarely, brevity
counts for little; as accuracy rises the weight moves from being right to being brief. Beside a verifier's 1 and 0, at a
weight below 1, a right answer is worth more than any wrong one. The abstract was read; the formula is the project's.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from pydantic import NonNegativeFloat
from torch import Tensor

from models.formulas.group_statistics import group_mean, group_sum
from models.loop.rollout import Rollout, groups_of
from models.loop.slots import Reward
from models.loop.world import World
from models.parts import part
from models.rewards.exact_answer import solves


@part("relative_length")
class RelativeLength(Reward):
    """Length against the mean of the prompt's right completions in the round, for right ones alone."""

    needs_answers = True
    patience: NonNegativeFloat = 1.0
    """How late brevity counts: the exponent of the share of right answers; 0: at once and always."""

    def __call__(self, world: World, rollouts: Sequence[Rollout]) -> Tensor:
        """Values in [-1, 1], [completions]."""
        groups = groups_of(rollouts)
        right = torch.tensor([float(solves(rollout)) for rollout in rollouts])
        lengths = torch.tensor([float(rollout.written_tokens) for rollout in rollouts])
        share = group_mean(right, groups)
        mean = group_sum(right * lengths, groups) / group_sum(right, groups).clamp(min=1.0)
        brevity = ((mean - lengths) / mean.clamp(min=1.0)).clamp(-1.0, 1.0)
        return right * share**self.patience * brevity

"""Reward for right answers that are shorter than the group's mean right one, more so on easy prompts (paper 241).

    value_i = p^patience * clip((m - length_i) / m, -1, 1)   of a right answer; 0 of a wrong one

p is the share of right answers in the group, m their mean length. The policy's own answers define how long a solution
has to be: no budget is set, and answers to problems that it never solves are not shortened. On a prompt that it solves
rarely, brevity counts little; as accuracy rises the weight shifts from correctness to brevity. Added to a verifier's 1
and 0 with a weight below 1, a right answer always gets more than a wrong one. Based on the abstract; the formula is the
project's.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from pydantic import NonNegativeFloat
from torch import Tensor

from models.answers.exact import solves
from models.method.registry import part
from models.method.resources import RunResources
from models.method.reward import Reward
from models.method.rollout import Rollout, groups_of
from models.parts.shared.group_statistics import group_mean, group_sum


@part("relative_length")
class RelativeLength(Reward):
    """Reward of right completions by their length relative to the mean right one of the prompt in the round."""

    needs_answers = True
    patience: NonNegativeFloat = 1.0
    """Exponent of the share of right answers: with larger values brevity counts later; 0: at once and always."""

    def __call__(self, resources: RunResources, rollouts: Sequence[Rollout]) -> Tensor:
        """Return values in [-1, 1], [completions]."""
        groups = groups_of(rollouts)
        right = torch.tensor([float(solves(rollout)) for rollout in rollouts])
        lengths = torch.tensor([float(rollout.written_tokens) for rollout in rollouts])
        share = group_mean(right, groups)
        mean = group_sum(right * lengths, groups) / group_sum(right, groups).clamp(min=1.0)
        brevity = ((mean - lengths) / mean.clamp(min=1.0)).clamp(-1.0, 1.0)
        return right * share**self.patience * brevity

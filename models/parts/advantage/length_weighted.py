"""The baseline of least variance for completions of different length: OPO (arXiv 2505.23585).

    A_i = r_i - b,   b = sum over the group of l_j * r_j / sum over the group of l_j        l: tokens of a completion

The baseline that minimises the variance of a policy gradient is E[|grad log pi|^2 r] / E[|grad log pi|^2]. If the
gradients of a completion's tokens are orthogonal and of one size, |grad log pi|^2 is proportional to its length. The
paper combines it with exact on-policy training: one step on each round's completions.
"""

from __future__ import annotations

import torch
from torch import Tensor

from models.method.advantage import CompletionAdvantage
from models.method.registry import part
from models.method.resources import RunResources
from models.method.scored import Scored
from models.parts.shared.group_statistics import group_mean
from models.parts.shared.kl_in_reward import KlInReward


@part("length_weighted")
class LengthWeighted(KlInReward, CompletionAdvantage):
    """Reward less the mean of its group, in which each completion is weighted by its length."""

    needs_group = True

    def of_completions(self, resources: RunResources, scored: Scored) -> Tensor:
        """Compute advantages, [completions]; their sum over each group, weighted by length, is zero.

        Raises:
            UserError: a KL penalty is wanted, but the recipe has no reference.
        """
        scored = self._penalised(resources, scored)
        rewards, groups = scored.rewards, scored.groups
        lengths = torch.tensor([rollout.trained_tokens for rollout in scored.rollouts]).to(rewards)
        mean = group_mean(lengths, groups)
        baseline = group_mean(lengths * rewards, groups) / mean.clamp(min=1e-12)
        return rewards - baseline

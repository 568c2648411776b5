"""Greedy baseline: the reward of the greedy completion is the baseline (ReMax, arXiv 2310.10505; paper 384).

    A_i = r_i - r(greedy completion of the same prompt)

The baseline depends on the prompt and the policy alone, so the policy gradient stays unbiased, and no critic is needed.
"""

from __future__ import annotations

import torch
from torch import Tensor

from models.base.errors import UserError
from models.method.advantage import CompletionAdvantage
from models.method.registry import part
from models.method.resources import RunResources
from models.method.scored import Scored
from models.parts.shared.kl_in_reward import KlInReward


@part("greedy_baseline")
class GreedyBaseline(KlInReward, CompletionAdvantage):
    """Reward less that of the greedy completion of the prompt; needs `rollouts: {name: sample_and_greedy}`."""

    needs_extra = "greedy"

    def of_completions(self, resources: RunResources, scored: Scored) -> Tensor:
        """Compute advantages, [completions]; zero for the greedy completions themselves.

        Raises:
            UserError: a prompt has no greedy completion; a KL penalty is wanted, but the recipe has no reference.
        """
        scored = self._penalised(resources, scored)
        groups = scored.groups
        baseline = torch.full((int(groups.max()) + 1,), torch.nan, dtype=scored.rewards.dtype)
        for index, rollout in enumerate(scored.rollouts):
            if rollout.source.origin == "greedy":
                baseline[groups[index]] = scored.rewards[index]
        advantage = scored.rewards - baseline[groups]
        if torch.isnan(advantage).any():
            raise UserError("advantage greedy_baseline needs a greedy completion: rollouts.name: sample_and_greedy")
        return advantage

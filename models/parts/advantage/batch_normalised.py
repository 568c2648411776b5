"""Advantages normalised over the whole batch instead of each group: REINFORCE++ (arXiv 2501.03262).

    A_t   = r - b - kl * sum over s >= t of log( pi_old(y_s) / reference(y_s) )
    A_t  <- (A_t - mean) / (deviation + epsilon)          over all trained tokens of the batch

    baseline none    b = 0: every completion counts, whatever the rewards of the others of its prompt (REINFORCE++)
    baseline group   b = mean of the prompt's completions (REINFORCE++-baseline)

A group of few completions estimates its own deviation badly, and divides by the smallest deviations on prompts that are
almost solved or almost lost. The deviation of the batch is the same for all of them.
"""

from __future__ import annotations

from typing import Literal

import torch
from pydantic import NonNegativeFloat
from torch import Tensor

from models.method.advantage import Signal
from models.method.registry import part
from models.method.resources import RunResources
from models.method.scored import Scored
from models.parts.shared.group_statistics import group_mean
from models.parts.shared.kl_in_reward import KlInReward
from models.parts.shared.token_advantages import discounted_to_go, whitened
from models.reward_models.critic.fit import trained_mask


@part("batch_normalised")
class BatchNormalised(KlInReward):
    """Rewards to go, less their mean and divided by their deviation over the tokens of the batch."""

    baseline: Literal["none", "group"] = "none"
    """none: the reward itself; group: less the mean of its group, before the KL is subtracted."""
    epsilon: NonNegativeFloat = 1e-4
    """Added to the deviation; keeps the division finite in a batch that hardly spreads."""

    @property
    def needs_group(self) -> bool:
        """Whether the group is the baseline."""
        return self.baseline == "group"

    @property
    def learns_from_flat_groups(self) -> bool:
        """Whether flat groups give a signal: true without a baseline, or with a KL penalty.

        Without a baseline a prompt that is always solved is better than the batch. With a KL penalty completions of
        equal reward differ.
        """
        return self.baseline == "none" or self.kl_in_reward > 0

    def __call__(self, resources: RunResources, scored: Scored) -> Signal:
        """Compute advantages token by token, [completions] tensors of [tokens of it].

        Raises:
            UserError: a KL penalty is wanted, but the recipe has no reference.
        """
        worth = scored.rewards
        if self.baseline == "group":
            worth = worth - group_mean(worth, scored.groups)
        tokens = [
            reward - penalty for reward, penalty in zip(worth.unbind(), self._penalties(resources, scored), strict=True)
        ]
        return Signal(whitened(tokens, [trained_mask(rollout) for rollout in scored.rollouts], self.epsilon))

    def _penalties(self, resources: RunResources, scored: Scored) -> list[Tensor]:
        """Compute the KL penalty that each token has still to pay, [completions] tensors of [tokens of it]."""
        nothing = [torch.zeros(length).to(scored.rewards) for length in scored.lengths.tolist()]
        for index, row in zip(*self._token_kls(resources, scored), strict=True):
            mine = torch.where(trained_mask(scored.rollouts[index]), row.to(scored.rewards), 0.0)
            nothing[index] = self.kl_in_reward * discounted_to_go(mine)
        return nothing

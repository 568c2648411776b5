"""Token advantages from process and outcome rewards, each against the prompt's other completions.

Source: PRIME (arXiv 2502.01456; paper 163).

    A_i,t = sum over s >= t of gamma^(s - t) * [p_i,s - mean over j != i of p_j] + o_i - mean over j != i of o_j

p_i,s: the rewards that are given token by token; p_j: their mean over the tokens of completion j
o_i:   everything else, which belongs to the whole completion

The outcome's baseline does not depend on completion i and leaves the policy gradient unbiased. The process baseline is
subtracted at every token, so its effect is larger: a completion is rewarded for tokens better than the others' and not
for being longer. The published code also scales a token's distance from its own completion's mean by K / (K - 1), which
is omitted here, and whitens over the tokens of the batch (`whiten`).
"""

from __future__ import annotations

import torch
from torch import Tensor

from models.base.bounds import Share
from models.base.errors import UserError
from models.method.advantage import Signal
from models.method.registry import part
from models.method.resources import RunResources
from models.method.scored import Scored
from models.parts.shared.group_statistics import group_mean
from models.parts.shared.kl_in_reward import KlInReward
from models.parts.shared.token_advantages import discounted_to_go, whitened
from models.parts.shared.written_tokens import spread_rows, written_rows
from models.reward_models.critic.fit import trained_mask


def others_mean(values: Tensor, groups: Tensor) -> Tensor:
    """Compute the mean of `values` over the group's other completions, [completions]; if alone, the own value."""
    size = torch.bincount(groups)[groups].to(values)
    return torch.where(size > 1, (group_mean(values, groups) * size - values) / (size - 1).clamp(min=1), values)


@part("process_leave_one_out")
class ProcessLeaveOneOut(KlInReward):
    """Rewards to go of the tokens plus the outcome, both less the mean of the others; zero for one that is alone."""

    needs_group = True
    needs_token_rewards = True
    discount: Share = 1.0
    """Discount per token (gamma)."""
    whiten: bool = False
    """Whether the advantages are normalised to mean 0 and deviation 1 over all tokens of the round."""

    def __call__(self, resources: RunResources, scored: Scored) -> Signal:
        """Compute advantages token by token, [completions] tensors of [tokens of it].

        Raises:
            UserError: no reward of the recipe is given token by token; a KL penalty is wanted, but the recipe has no
                reference.
        """
        scored = self._penalised(resources, scored)
        if scored.token_rewards is None:
            raise UserError(
                "advantage process_leave_one_out needs a reward for each token, such as rewards.name: implicit_process"
            )
        groups = scored.groups
        process = written_rows([row.to(scored.rewards) for row in scored.token_rewards], scored.rollouts)
        outcome = scored.rewards - torch.stack([row.sum() for row in process])
        outcome = outcome - others_mean(outcome, groups)
        means = torch.stack([row.mean() for row in process])
        baseline = others_mean(means, groups)
        alone = torch.bincount(groups)[groups] < 2
        tokens = [
            torch.zeros_like(row) if alone[i] else discounted_to_go(row - baseline[i], self.discount) + outcome[i]
            for i, row in enumerate(process)
        ]
        tokens = spread_rows(tokens, scored.rollouts)
        masks = [trained_mask(rollout) for rollout in scored.rollouts]
        return Signal(whitened(tokens, masks) if self.whiten else tokens)

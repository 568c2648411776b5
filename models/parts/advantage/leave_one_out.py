"""Leave-one-out advantage: the mean of the other completions of the prompt is the baseline (RLOO, arXiv 2402.14740).

    A_i = r_i - mean of r_j over j != i = G / (G - 1) * (r_i - mean of group)

The baseline does not depend on the completion itself, so the policy gradient stays unbiased. The paper's reward holds
the KL to the reference (`kl_in_reward`): it is subtracted before the mean of the others is.
"""

from __future__ import annotations

import torch
from torch import Tensor

from models.method.advantage import CompletionAdvantage
from models.method.registry import part
from models.method.resources import RunResources
from models.method.scored import Scored
from models.parts.shared.group_statistics import group_mean, group_sum
from models.parts.shared.kl_in_reward import KlInReward


@part("leave_one_out")
class LeaveOneOut(KlInReward, CompletionAdvantage):
    """Reward less the mean of the others in its group; zero for a completion that is alone."""

    needs_group = True

    def of_completions(self, resources: RunResources, scored: Scored) -> Tensor:
        """Compute advantages, [completions]; the sum of every group is zero.

        Raises:
            UserError: a KL penalty is wanted, but the recipe has no reference.
        """
        scored = self._penalised(resources, scored)
        groups = scored.groups
        sizes = group_sum(torch.ones_like(scored.rewards), groups)
        return (scored.rewards - group_mean(scored.rewards, groups)) * sizes / (sizes - 1).clamp(min=1)

"""Group-relative advantage among the policy's samples: answers of the data are not part of the group.

    A_i = (r_i - mean of samples) / (standard deviation of samples + epsilon),   zero for answers of the data

For methods that imitate the data with a loss of their own: an expert among the samples would raise their mean and so
penalise samples that are good for the policy (CHORD, paper 265, separates the two).
"""

from __future__ import annotations

import torch
from torch import Tensor

from models.method.registry import part
from models.method.resources import RunResources
from models.method.scored import Scored
from models.parts.advantage.group_relative import GroupRelative


@part("among_samples")
class AmongSamples(GroupRelative):
    """Reward less the mean of the samples of its group, in the unit that `scale` sets; zero for answers of the data."""

    def of_completions(self, resources: RunResources, scored: Scored) -> Tensor:
        """Compute advantages, [completions]; the mean over the samples of every group is zero."""
        data = ("demonstration", "chosen", "rejected")
        samples = [index for index, rollout in enumerate(scored.rollouts) if rollout.source.origin not in data]
        advantage = torch.zeros_like(scored.rewards)
        if samples:
            chosen = torch.tensor(samples)
            advantage[chosen] = super().of_completions(resources, scored.take(chosen))
        return advantage

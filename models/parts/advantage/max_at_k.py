"""The unbiased policy gradient of pass@k, and of the best reward of k tries: PKPO (arXiv 2505.15201).

    A_i = mean over all subsets I of k completions of [i in I] * (max over I of r - max over I without i of r) * G

The gain of a completion over the best of the others in a subset, averaged over the subsets. G is the number of
completions of a prompt, so that a mean over completions of A_i grad log pi(y_i) is the published sum of s_i grad log
pi(y_i). The best of the others does not depend on completion i, so it is a baseline without bias (the paper's
s^(loo-1), of least variance among its three):

    E[ mean over i of A_i grad log pi(y_i) ] = grad E[ max of k rewards ]

which for rewards of 0 and 1 is the gradient of pass@k. Advantages are never negative: only a completion that is the
best of some subset is made likelier. In order of reward, the sum over subsets has the closed form

    A_i = k / C(G - 1, k - 1) * sum over j below i of C(place of j, k - 2) * (r_i - r_j)         places from 0 upwards
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from models.base.bounds import Positive
from models.method.advantage import CompletionAdvantage
from models.method.registry import part
from models.method.resources import RunResources
from models.method.scored import Scored
from models.parts.shared.subsets import groups_of_at_least


@part("max_at_k")
class MaxAtK(CompletionAdvantage):
    """Gain of a completion over the best of k without it, averaged over the subsets of its group."""

    needs_group = True
    k: Positive = 4
    """Completions of a subset; 1: the reward itself, without any baseline."""
    by: str = "total"
    """Reward component to maximise; `total` is the weighted sum."""

    @property
    def least_group(self) -> int:
        """Smallest group that k completions can be drawn from, at least 2."""
        return max(2, self.k)

    @property
    def learns_from_flat_groups(self) -> bool:
        """Whether k is 1: then the other completions give no baseline."""
        return self.k == 1

    def of_completions(self, resources: RunResources, scored: Scored) -> Tensor:
        """Compute advantages, [completions], never negative for k > 1.

        Raises:
            UserError: a group holds fewer than k completions; no reward is called `by`.
        """
        worth = scored.component(self.by, "advantage.by")
        advantage = torch.zeros_like(worth)
        for members in groups_of_at_least(self.k, scored):
            advantage[members] = gains_over_others(worth[members], self.k)
        return advantage


def gains_over_others(rewards: Tensor, k: int) -> Tensor:
    """Compute each completion's gain over the best of the others in a subset of k, [completions].

    The gain is averaged over all subsets and multiplied by the number of completions. The order is that of `rewards`.

    Args:
        rewards: rewards of one group, [completions].
        k: completions of a subset, at most all.
    """
    if k == 1:
        return rewards.clone()
    size = len(rewards)
    ordered, order = rewards.sort(stable=True)
    # C(place, k - 2) subsets of the others have their best at a place. That i shifts the places above it does not
    # matter, because completions above i add nothing to the sum
    ways = torch.tensor([math.comb(place, k - 2) for place in range(size)], dtype=torch.float64).to(rewards)
    above = (ordered[:, None] - ordered[None, :]).clamp(min=0)
    added = torch.empty_like(rewards)
    added[order] = above @ ways * k / math.comb(size - 1, k - 1)
    return added

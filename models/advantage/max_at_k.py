"""The unbiased policy gradient of pass@k, and of the best reward of k tries: PKPO (arXiv 2505.15201).

    A_i = mean over all subsets I of k completions of [i in I] * (max over I of r - max over I without i of r) * G

What a completion adds to the best of a subset, averaged over the subsets; G completions of a prompt, so that a mean
over completions of A_i grad log pi(y_i) is the published sum of s_i grad log pi(y_i). The best of the others does not
depend on completion i, so it is a baseline without bias (the paper's s^(loo-1), of least variance among its three):

    E[ mean over i of A_i grad log pi(y_i) ] = grad E[ max of k rewards ]

which for rewards of 0 and 1 is the gradient of pass@k. Advantages are never negative: only what is the best of some
subset is made likelier. In order of reward, with m others below completion i, the sum over subsets is in closed form

    A_i = k / C(G - 1, k - 1) * sum over j below i of C(place of j, k - 2) * (r_i - r_j)         places from 0 upwards
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from models.bounds import Positive
from models.formulas.subsets import groups_of_at_least
from models.loop.rollout import Scored
from models.loop.slots import CompletionAdvantage
from models.loop.world import World
from models.parts import part


@part("max_at_k")
class MaxAtK(CompletionAdvantage):
    """What a completion adds to the best of k, averaged over the subsets of its group."""

    needs_group = True
    k: Positive = 4
    """Completions of a subset; 1: the reward itself, without any baseline."""
    by: str = "total"
    """The reward component that is to be large; `total` is the weighted sum."""

    @property
    def least_group(self) -> int:
        """One of which k can be drawn."""
        return max(2, self.k)

    @property
    def learns_from_flat_groups(self) -> bool:
        """Of k = 1 there are no others to be a baseline."""
        return self.k == 1

    def of_completions(self, world: World, scored: Scored) -> Tensor:
        """Advantages, [completions], never negative for k > 1.

        Raises:
            UserError: a group holds fewer than k completions; no reward is called `by`.
        """
        worth = scored.component(self.by, "advantage.by")
        advantage = torch.zeros_like(worth)
        for members in groups_of_at_least(self.k, scored):
            advantage[members] = added_to_the_best(worth[members], self.k)
        return advantage


def added_to_the_best(rewards: Tensor, k: int) -> Tensor:
    """What each completion of a group adds to the best of k, [completions], times completions, in their order.

    Args:
        rewards: of one group, [completions].
        k: completions of a subset, at most all.
    """
    if k == 1:
        return rewards.clone()
    size = len(rewards)
    ordered, order = rewards.sort(stable=True)
    # C(place, k - 2) subsets of the others have their best at a place; how i itself shifts the places above it does
    # not matter, for what is above i takes nothing from it
    ways = torch.tensor([math.comb(place, k - 2) for place in range(size)], dtype=torch.float64).to(rewards)
    above = (ordered[:, None] - ordered[None, :]).clamp(min=0)
    added = torch.empty_like(rewards)
    added[order] = above @ ways * k / math.comb(size - 1, k - 1)
    return added

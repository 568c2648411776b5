"""Pass@k training: a completion is worth its contribution to k tries, one of which must be right (arXiv 2508.10751).

If all subsets of k completions of a prompt were drawn, and each rewarded by its best, a completion's advantage would be
the mean over the subsets that hold it. With N completions, of which N_neg are wrong, the closed form is

    rho   = 1 - C(N_neg, k) / C(N, k)                     sigma = sqrt(rho (1 - rho))
    A_pos = (1 - rho) / (sigma + epsilon)
    A_neg = (1 - rho - C(N_neg - 1, k - 1) / C(N - 1, k - 1)) / (sigma + epsilon)

the paper's "analytical derivation". If k tries are certain to hold a right one (N_neg < k), there is nothing left to
learn: prompts that are mostly solved have no weight, and the policy keeps the answers that it already has.
"""

from __future__ import annotations

import math

import torch
from pydantic import NonNegativeFloat
from torch import Tensor

from models.base.bounds import Number, Positive
from models.method.advantage import CompletionAdvantage
from models.method.registry import part
from models.method.resources import RunResources
from models.method.scored import Scored
from models.parts.shared.subsets import groups_of_at_least


@part("pass_at_k")
class PassAtK(CompletionAdvantage):
    """Contribution of right and wrong completions to k tries, normalised over the subsets of their group."""

    needs_group = True
    k: Positive = 4
    """Tries, of which one must be right; 1 is the group-relative advantage of right and wrong."""
    by: str = "total"
    """Reward component that is the verdict; `total` is the weighted sum."""
    threshold: Number = 0.5
    """Threshold of the verdict above which a completion is right."""
    epsilon: NonNegativeFloat = 1e-6
    """Added to the deviation; keeps the division finite if all subsets are worth the same."""

    @property
    def least_group(self) -> int:
        """Smallest group, k + 1: with only k completions all subsets of k would be the same one."""
        return self.k + 1

    def of_completions(self, resources: RunResources, scored: Scored) -> Tensor:
        """Compute advantages, [completions]; the mean of every group is zero.

        Raises:
            UserError: a group holds fewer than k completions; no reward is called `by`.
        """
        right = scored.component(self.by, "advantage.by") > self.threshold
        advantage = torch.zeros_like(scored.rewards)
        for members in groups_of_at_least(self.k, scored):
            both = advantages(len(members), int((~right[members]).sum()), self.k, self.epsilon)
            of_right, of_wrong = torch.tensor(both, dtype=advantage.dtype)
            advantage[members] = torch.where(right[members], of_right, of_wrong)
        return advantage


def advantages(total: int, wrong: int, k: int, epsilon: float) -> tuple[float, float]:
    """Compute the advantages of a right and of a wrong completion of a group.

    Args:
        total: completions of the group.
        wrong: number of wrong ones among them.
        k: tries.
        epsilon: added to the deviation.
    """
    missed = math.comb(wrong, k) / math.comb(total, k)
    scale = math.sqrt(missed * (1.0 - missed)) + epsilon
    if missed in (0.0, 1.0):
        return 0.0, 0.0
    return missed / scale, (missed - math.comb(wrong - 1, k - 1) / math.comb(total - 1, k - 1)) / scale

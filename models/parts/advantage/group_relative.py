"""Group-relative advantage: the other completions of the same prompt are the baseline (GRPO, arXiv 2402.03300).

    A_i = (r_i - mean of group) / (standard deviation of group + epsilon)

The divisor of a distance from the mean is set by `scale`:

    group    the deviation of the prompt's rewards; prompts that are almost solved or lost weigh more
    batch    the deviation of all rewards of the batch, the same for every prompt (arXiv 2508.08221, Lite PPO)
    mean     the mean of the prompt's rewards: with 1 and 0, the share of right ones p. Then the expected gradient is
             that of log p and not of p, its series cut off before the number of samples (MaxRL, arXiv 2602.02710):
             grad log p = sum over k >= 1 of grad pass@k / k; hard prompts weigh more, by 1 / p
    none     nothing: the unbiased form of Dr. GRPO (arXiv 2503.20783)

With `difficulty` the advantages of a prompt are weighted by its difficulty, from the mean p of one reward, which must
be from 0 to 1:

    middle   4 p (1 - p): prompts that are right half of the time weigh most (Observe-R1, paper 65, arXiv 2506.16760)
    hard     exp(1 - p): the lower the rewards, the more (UniVG-R1, paper 234, arXiv 2505.14231)

The deviation is that of the group or batch itself (`n`) or the estimate for its population (`n-1`), which most
published code uses: it is larger by sqrt(G / (G - 1)), that is by 7 % at G = 8 and by 41 % at G = 2 (without epsilon).
"""

from __future__ import annotations

from typing import Literal

import torch
from pydantic import NonNegativeFloat
from torch import Tensor

from models.base.errors import UserError
from models.method.advantage import CompletionAdvantage
from models.method.registry import part
from models.method.resources import RunResources
from models.method.scored import Scored
from models.parts.shared.group_statistics import group_mean, group_sum
from models.parts.shared.kl_in_reward import KlInReward


@part("group_relative")
class GroupRelative(KlInReward, CompletionAdvantage):
    """Reward less the mean of its group, in the unit that `scale` sets."""

    needs_group = True
    scale: Literal["group", "batch", "mean", "none"] = "group"
    """group, batch: divide by the standard deviation of the rewards of the group or of all; mean: by the group's mean
    reward, for rewards that are never negative; none: leave the units of the reward."""
    deviation: Literal["n", "n-1"] = "n"
    """Divisor of the sum of squares: their number, or one less."""
    epsilon: NonNegativeFloat = 1e-4
    """Added to the divisor; keeps the division finite if rewards hardly spread or are near zero."""

    difficulty: Literal["none", "middle", "hard"] = "none"
    """Weight of a prompt: none: all the same; middle: most at a mean of one half; hard: more the lower the mean."""
    by: str = "total"
    """Label of the reward that `difficulty` is measured by, from 0 to 1; `total`, the weighted sum."""

    def __post_init__(self) -> None:
        """Raise an error if the divisor may be negative."""
        if self.scale == "mean" and self.kl_in_reward:
            raise ValueError("scale is mean, for rewards that are never negative: kl_in_reward must be 0")

    def of_completions(self, resources: RunResources, scored: Scored) -> Tensor:
        """Compute advantages, [completions]; the mean of every group is zero.

        Raises:
            UserError: a KL penalty is wanted, but the recipe has no reference; a reward is negative and `scale` is
                mean.
        """
        scored = self._penalised(resources, scored)
        groups = scored.groups
        mean = group_mean(scored.rewards, groups)
        centred = (scored.rewards - mean) * self._weights(scored)
        if self.scale == "none":
            return centred
        if self.scale == "mean":
            _require_no_negative(scored)
            return centred / (mean + self.epsilon)
        members = torch.zeros_like(groups) if self.scale == "batch" else groups
        variance = group_mean((scored.rewards - group_mean(scored.rewards, members)) ** 2, members)
        if self.deviation == "n-1":
            sizes = group_sum(torch.ones_like(variance), members)
            variance = variance * sizes / (sizes - 1).clamp(min=1)
        return centred / (variance.sqrt() + self.epsilon)

    def _weights(self, scored: Scored) -> Tensor:
        """Return the weight of each completion's prompt, [completions]."""
        if self.difficulty == "none":
            return torch.ones_like(scored.rewards)
        values = scored.component(self.by).to(scored.rewards.dtype)
        for rollout, value in zip(scored.rollouts, values.tolist(), strict=True):
            if not 0.0 <= value <= 1.0:
                raise UserError(
                    f"advantage.by: {rollout.problem.id} has a completion whose reward {self.by} is {value:.4g}; "
                    f"difficulty: {self.difficulty} needs one from 0 to 1"
                )
        mean = group_mean(values, scored.groups)
        return 4.0 * mean * (1.0 - mean) if self.difficulty == "middle" else torch.exp(1.0 - mean)


def _require_no_negative(scored: Scored) -> None:
    for rollout, reward in zip(scored.rollouts, scored.rewards.tolist(), strict=True):
        if reward < 0:
            raise UserError(
                f"advantage.scale is mean, for rewards that are never negative, but problem {rollout.problem.id} has "
                f"a completion of reward {reward:.3g}"
            )

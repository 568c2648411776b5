"""Group-relative advantage: the other completions of the same prompt are the baseline (GRPO, arXiv 2402.03300).

    A_i = (r_i - mean of group) / (standard deviation of group + epsilon)

Without the division (`scale: none`) it is the unbiased form of Dr. GRPO (arXiv 2503.20783). The deviation is that of
the group as it is (`n`) or the estimate of the prompt's own (`n-1`), which most published code takes: by sqrt(G / (G -
1)) the larger, so by 7 % at G = 8 and by 41 % at G = 2 (without epsilon).
"""

from __future__ import annotations

from typing import Annotated, Literal

import torch
from pydantic import Field
from torch import Tensor

from models.formulas.kl_in_reward import KlInReward
from models.loop.rollout import Scored, group_mean
from models.loop.slots import CompletionAdvantage
from models.loop.world import World
from models.parts import part


@part("group_relative")
class GroupRelative(KlInReward, CompletionAdvantage):
    """Reward against the mean of its group."""

    needs_group = True
    scale: Literal["group", "none"] = "group"
    """group: divide by the group's standard deviation; none: leave the units of the reward."""
    deviation: Literal["n", "n-1"] = "n"
    """What the squares are divided by, the group's size or one less."""
    epsilon: Annotated[float, Field(ge=0)] = 1e-4
    """Keeps the division finite in a group that hardly spreads."""

    def of_completions(self, world: World, scored: Scored) -> Tensor:
        """Advantages, [completions]; the mean of every group is zero.

        Raises:
            UserError: a KL penalty is wanted, but the recipe has no reference.
        """
        scored = self._penalised(world, scored)
        groups = scored.groups
        centred = scored.rewards - group_mean(scored.rewards, groups)
        if self.scale == "none":
            return centred
        variance = group_mean(centred**2, groups)
        if self.deviation == "n-1":
            sizes = torch.bincount(groups)[groups].to(variance)
            variance = variance * sizes / (sizes - 1).clamp(min=1)
        return centred / (variance.sqrt() + self.epsilon)

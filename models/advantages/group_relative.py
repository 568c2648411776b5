"""Group-relative advantage: the other completions of the same prompt are the baseline (GRPO, arXiv 2402.03300).

    A_i = (r_i - mean of group) / (standard deviation of group + epsilon)

Without the division (`scale: none`) it is the unbiased form of Dr. GRPO (arXiv 2503.20783).
"""

from __future__ import annotations

from typing import ClassVar, Literal

from torch import Tensor

from models.loop.rollout import Scored, group_mean
from models.loop.slots import World
from models.parts import part


@part("advantage", "group_relative")
class GroupRelative:
    """Reward against the mean of its group."""

    needs_group: ClassVar[bool] = True
    scale: Literal["group", "none"] = "group"
    """group: divide by the group's standard deviation; none: leave the units of the reward."""
    epsilon: float = 1e-4
    """Keeps the division finite in a group that hardly spreads."""

    def __call__(self, world: World, scored: Scored) -> Tensor:
        """Advantages, [completions]; the mean of every group is zero."""
        groups = scored.groups
        centred = scored.rewards - group_mean(scored.rewards, groups)
        if self.scale == "none":
            return centred
        return centred / (group_mean(centred**2, groups).sqrt() + self.epsilon)

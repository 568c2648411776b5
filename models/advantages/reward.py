"""The reward itself, less a constant: REINFORCE (Williams 1992) with a fixed baseline.

A_i = r_i - baseline

Prompts whose completions are all right, or all wrong, teach as any others: the constant knows nothing of their group.
"""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor

from models.advantages.kl_in_reward import KlInReward
from models.loop.rollout import Scored
from models.loop.slots import World
from models.parts import part


@part("advantage", "reward")
class FixedBaseline(KlInReward):
    """Reward less a constant."""

    needs_group: ClassVar[bool] = False
    baseline: float = 0.0

    @property
    def flat_groups_teach(self) -> bool:
        """The constant knows nothing of the group."""
        return True

    def __call__(self, world: World, scored: Scored) -> Tensor:
        """Advantages, [completions].

        Raises:
            UserError: a KL penalty is wanted, but the recipe has no reference.
        """
        return self.penalised(world, scored).rewards - self.baseline


@part("advantage", "none")
class NoAdvantage:
    """One for every completion, whatever it is worth: for objectives that weigh completions themselves."""

    needs_group: ClassVar[bool] = False

    def __call__(self, world: World, scored: Scored) -> Tensor:
        """Ones, [completions]."""
        return torch.ones_like(scored.rewards)

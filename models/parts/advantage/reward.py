"""The reward itself, less a constant: REINFORCE (Williams 1992) with a fixed baseline.

A_i = r_i - baseline

Prompts whose completions are all right, or all wrong, are trained on like any others: the constant does not depend on
their group.
"""

from __future__ import annotations

import torch
from torch import Tensor

from models.base.bounds import Number
from models.method.advantage import CompletionAdvantage
from models.method.registry import part
from models.method.resources import RunResources
from models.method.scored import Scored
from models.parts.shared.kl_in_reward import KlInReward


@part("reward")
class FixedBaseline(KlInReward, CompletionAdvantage):
    """Reward less a constant."""

    baseline: Number = 0.0
    """Constant that is subtracted from every reward."""

    @property
    def learns_from_flat_groups(self) -> bool:
        """Whether flat groups give a signal: true, because the constant does not depend on the group."""
        return True

    def of_completions(self, resources: RunResources, scored: Scored) -> Tensor:
        """Compute advantages, [completions].

        Raises:
            UserError: a KL penalty is wanted, but the recipe has no reference.
        """
        return self._penalised(resources, scored).rewards - self.baseline


@part("none")
class NoAdvantage(CompletionAdvantage):
    """One for every completion, whatever its reward: for objectives that weight completions themselves."""

    def of_completions(self, resources: RunResources, scored: Scored) -> Tensor:
        """Return ones, [completions]."""
        return torch.ones_like(scored.rewards)

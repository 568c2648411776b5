"""Credit by states: turns that the episodes of a group took in the same state are compared with one another.

    leave_one_out   A_i,t = G_i,t - mean of G_j,u over the others' turns in the same state; alone it keeps G_i,t
    gigpo           A_i,t = (R_i - mean R) / std R + omega * (G_i,t - mean of the state) / std of the state     (GiGPO)

G is the return from a turn on, R that of the whole episode. The first form is unbiased with gamma 1: no return in the
baseline is of the same episode. The second is "Group-in-Group Policy Optimization" (arXiv 2505.10978), as published: a
turn alone in its state has zero there, and the turn's own return is part of both means. Both properties bias the
gradient. In a two-turn decision process that is small enough to enumerate every pair of episodes, the expected
estimator without standard deviations differs by 0.03 from a true gradient whose largest entry is 0.14, and has another
direction (checked by a test).
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Literal

import torch
from pydantic import NonNegativeFloat
from torch import Tensor

from models.base.bounds import Share
from models.method.advantage import Advantage, Signal
from models.method.registry import part
from models.method.resources import RunResources
from models.method.scored import Scored
from models.parts.shared.group_statistics import group_mean
from models.parts.shared.of_turns import at_tokens, earned_by_turn, less_the_others, returns_to_go, state_of, turns_of
from models.parts.shared.token_advantages import EPSILON


@part("anchored")
class Anchored(Advantage):
    """Return from each turn on, compared with the returns of the group's turns in the same state."""

    needs_group = True
    learns_from_flat_groups = True
    form: Literal["leave_one_out", "gigpo"] = "leave_one_out"
    """leave_one_out is unbiased; gigpo is GiGPO as published, which is not."""
    gamma: Share = 1.0
    """Discount of a reward per turn."""
    omega: NonNegativeFloat = 1.0
    """Weight of the turn's advantage next to the episode's (gigpo)."""
    scale: Literal["group", "none"] = "group"
    """group: divide by standard deviations (gigpo); none: leave the units of the reward."""

    def __call__(self, resources: RunResources, scored: Scored) -> Signal:
        """Compute advantages token by token, equal within a turn."""
        returns = returns_to_go(earned_by_turn(scored), self.gamma)
        states: list[list[Hashable]] = [
            [state_of(rollout, turn) for turn in turns_of(rollout)] for rollout in scored.rollouts
        ]
        if self.form == "leave_one_out":
            return Signal(at_tokens(less_the_others(returns, states, scored.groups), scored.rollouts))
        whole = self._scaled(scored.rewards.double(), scored.groups)
        counts = [len(row) for row in returns]
        numbers: dict[object, int] = {}
        labels = torch.tensor(
            [
                numbers.setdefault((group, state), len(numbers))
                for group, names in zip(scored.groups.tolist(), states, strict=True)
                for state in names
            ]
        )
        steps = self._scaled(torch.cat(returns).double(), labels).split(counts)
        turns = [episode + self.omega * step for episode, step in zip(whole, steps, strict=True)]
        return Signal(at_tokens([row.to(scored.rewards) for row in turns], scored.rollouts))

    def _scaled(self, values: Tensor, labels: Tensor) -> Tensor:
        """Subtract the mean of the label from `values`, and divide by its deviation if requested, [values]."""
        apart = values - group_mean(values, labels)
        if self.scale == "none":
            return apart
        return apart / (group_mean(apart.square(), labels).sqrt() + EPSILON)

"""Rewards of the environment for each turn, at the turn's last token (turn-level rewards, paper 204, arXiv 2510.01132).

Their sum is the episode's reward. A completion without turns has none, and gets zero.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from models.method.registry import part
from models.method.resources import RunResources
from models.method.reward import TokenReward
from models.method.rollout import Rollout


@part("turn_rewards")
class TurnRewards(TokenReward):
    """The environment's rewards, turn by turn."""

    def tokens(self, resources: RunResources, rollouts: Sequence[Rollout]) -> list[Tensor]:
        """Return the reward of a turn at its last token, zero elsewhere, [completions] tensors of [tokens of it]."""
        rows = []
        for rollout in rollouts:
            row = torch.zeros(len(rollout.completion))
            for turn in rollout.episode.turns:
                row[turn.stop - 1] += turn.reward
            rows.append(row)
        return rows

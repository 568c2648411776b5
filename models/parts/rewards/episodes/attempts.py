"""Rewards of successive attempts at one problem, with a bonus for improvement (SCoRe, paper 121, arXiv 2409.12917).

    first stage     r_n at the last attempt, zero at the others
    afterwards      r_t at each, plus alpha * (r_t - r_t-1) from the second on

r is the environment's reward of a turn, as in `second_try`. With two attempts that is r1 + r2 + alpha (r2 - r1). In the
first stage a strong KL at the first turn (`objective.kl_by_turn`) keeps the policy from giving both attempts the same
answer, to which training on the sum alone converges. The bonus then starts from a policy that does correct itself.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from pydantic import NonNegativeFloat, NonNegativeInt
from torch import Tensor

from models.method.registry import part
from models.method.resources import RunResources
from models.method.reward import TokenReward
from models.method.rollout import Rollout


@part("attempts")
class Attempts(TokenReward):
    """Rewards of attempts with a bonus for correction."""

    alpha: NonNegativeFloat = 1.0
    """Weight of the gain over the previous attempt; a loss is weighted likewise."""
    first_stage: NonNegativeInt = 0
    """Number of the policy's first optimiser steps in which only the last of several attempts counts."""

    def tokens(self, resources: RunResources, rollouts: Sequence[Rollout]) -> list[Tensor]:
        """Return the rewards at the last token of each turn, [completions] tensors of [tokens of it]."""
        last_alone = resources.learner.updates < self.first_stage
        rows = []
        for rollout in rollouts:
            row = torch.zeros(len(rollout.completion))
            for number, turn in enumerate(rollout.episode.turns):
                if last_alone:
                    worth = turn.reward if number + 1 == len(rollout.episode.turns) > 1 else 0.0
                else:
                    gain = turn.reward - rollout.episode.turns[number - 1].reward if number else 0.0
                    worth = turn.reward + self.alpha * gain
                row[turn.stop - 1] += worth
            rows.append(row)
        return rows

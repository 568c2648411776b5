"""What a bandit's pulls lost against its best arm, turn by turn, below zero (BanditBench; EVOLvE, paper 52, arXiv
2410.06238; as a loss to be trained on, paper 79, arXiv 2403.16843).

    pulls    -(best mean - mean of the arm), at the last token of each turn
             and with `horizon` what was never pulled loses the best mean whole, at the last token of all
    slope    how much regret still grows with every pull: the linear term of the fit by 1, log t and t, below zero, at
             the end; the mean over episodes is the fit of their mean regret

Means in place of what chance gave: the same choices are worth the same. They stand in the problem's answer.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import torch
from pydantic import NonNegativeInt
from torch import Tensor

from models.episodes.arms import gaps, means_of
from models.formulas.regret import growth
from models.loop.rollout import Rollout
from models.loop.slots import TokenReward
from models.loop.world import World
from models.parts import part

_LEAST = 3
"""Pulls that a fit of three terms needs."""


@part("regret")
class Regret(TokenReward):
    """Expected regret of each pull, below zero."""

    needs_answers = True
    of: Literal["pulls", "slope"] = "pulls"
    """Regret itself, or the term of its growth that never ends."""
    horizon: NonNegativeInt = 0
    """Pulls that an episode should have (pulls). Without it the least regret is that of a policy that ends its episodes
    early."""

    def tokens(self, world: World, rollouts: Sequence[Rollout]) -> list[Tensor]:
        """At the last token of each turn, or of the episode, [completions] tensors of [tokens of it]."""
        rows = []
        for rollout in rollouts:
            row = torch.zeros(len(rollout.completion))
            lost = torch.tensor(gaps([turn.said for turn in rollout.turns], means_of(rollout.problem)))
            if self.of == "pulls":
                for turn, value in zip(rollout.turns, lost.tolist(), strict=True):
                    row[turn.stop - 1] -= value
                row[-1] -= max(0, self.horizon - len(lost)) * max(means_of(rollout.problem))
            elif len(lost) >= _LEAST:
                row[-1] = -float(growth(lost.cumsum(0))[-1])
            rows.append(row)
        return rows

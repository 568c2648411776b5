"""Negative regret of a bandit's pulls (BanditBench; EVOLvE, paper 52, 2410.06238; as a loss: paper 79, 2403.16843).

    pulls    -(best mean - mean of the arm), at the last token of each turn
             with `horizon`, each missing pull costs the best mean, at the last token of the episode
    slope    how much regret still grows with every pull: the linear term of the fit by 1, log t and t, below zero, at
             the end; the mean over episodes is the fit of their mean regret

The arms' means are used, and not the sampled payoffs, so that equal choices get equal rewards. They are read from the
problem's answer.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import torch
from pydantic import NonNegativeInt
from torch import Tensor

from models.agents.play.arms import gaps, means_of
from models.method.registry import part
from models.method.resources import RunResources
from models.method.reward import TokenReward
from models.method.rollout import Rollout
from models.parts.shared.regret import growth

_LEAST = 3
"""Number of pulls that a fit of three terms needs."""


@part("regret")
class Regret(TokenReward):
    """Expected regret of each pull, as a negative reward."""

    needs_answers = True
    of: Literal["pulls", "slope"] = "pulls"
    """Regret of each pull, or the linear term of its growth."""
    horizon: NonNegativeInt = 0
    """Number of pulls that an episode should have (pulls). Without it, a policy that ends its episodes early has the
    least regret."""

    def tokens(self, resources: RunResources, rollouts: Sequence[Rollout]) -> list[Tensor]:
        """Return the rewards at the last token of each turn, or of the episode.

        The result is [completions] tensors of [tokens of it].
        """
        rows = []
        for rollout in rollouts:
            row = torch.zeros(len(rollout.completion))
            lost = torch.tensor(gaps([turn.text for turn in rollout.episode.turns], means_of(rollout.problem)))
            if self.of == "pulls":
                for turn, value in zip(rollout.episode.turns, lost.tolist(), strict=True):
                    row[turn.stop - 1] -= value
                row[-1] -= max(0, self.horizon - len(lost)) * max(means_of(rollout.problem))
            elif len(lost) >= _LEAST:
                row[-1] = -float(growth(lost.cumsum(0))[-1])
            rows.append(row)
        return rows

"""Partial credit for what an episode reached on its way: lines that the environment wrote, each counted once.

In the paper a frozen model puts prints into the program that the policy wrote, `loaded data`, `built model`, and what
the run printed earns a little before the program ever scores (RL for machine-learning engineering agents, paper 194,
arXiv 2509.01684). A milestone is a pattern that the environment's words match; it is worth something at the turn after
which it was matched first. What the policy says itself reaches none.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import torch
from torch import Tensor

from models.bounds import Number
from models.loop.rollout import Rollout
from models.loop.slots import TokenReward
from models.loop.world import World
from models.parts import part


@part("milestones")
class Milestones(TokenReward):
    """What the environment's words show to have been reached."""

    patterns: tuple[str, ...] = (r"\S",)
    """Regular expressions, searched in what the environment says after each turn."""
    each: Number = 0.1
    """What each of them is worth."""

    def __post_init__(self) -> None:
        """Refuse what is no regular expression."""
        super().__post_init__()
        for pattern in self.patterns:
            try:
                re.compile(pattern)
            except re.error as error:
                raise ValueError(f"patterns: {pattern!r} is no regular expression ({error})") from None

    def tokens(self, world: World, rollouts: Sequence[Rollout]) -> list[Tensor]:
        """At the last token of each turn, [completions] tensors of [tokens of it]."""
        rows = []
        for rollout in rollouts:
            row = torch.zeros(len(rollout.completion))
            left = list(self.patterns)
            for turn in rollout.turns:
                reached = [pattern for pattern in left if re.search(pattern, turn.heard)]
                row[turn.stop - 1] += self.each * len(reached)
                left = [pattern for pattern in left if pattern not in reached]
            rows.append(row)
        return rows

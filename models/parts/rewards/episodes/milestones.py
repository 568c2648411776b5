"""Partial credit for milestones of an episode: patterns in the environment's output, each counted once (paper 194).

In the paper a frozen model inserts print statements into the policy's program, `loaded data`, `built model`, and the
printed lines give partial credit before the program gets a score (RL for machine-learning engineering agents, paper
194, arXiv 2509.01684). A milestone is a pattern that the environment's output matches; its reward is given at the turn
after which it first matched. The policy's own text reaches no milestone.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import torch
from torch import Tensor

from models.base.bounds import Number
from models.method.registry import part
from models.method.resources import RunResources
from models.method.reward import TokenReward
from models.method.rollout import Rollout


@part("milestones")
class Milestones(TokenReward):
    """Milestones that the environment's output shows to have been reached."""

    patterns: tuple[str, ...] = (r"\S",)
    """Regular expressions, searched in the environment's output after each turn."""
    each: Number = 0.1
    """Reward of each milestone."""

    def __post_init__(self) -> None:
        """Reject an invalid regular expression."""
        super().__post_init__()
        for pattern in self.patterns:
            try:
                re.compile(pattern)
            except re.error as error:
                raise ValueError(f"patterns: {pattern!r} is not a regular expression ({error})") from None

    def tokens(self, resources: RunResources, rollouts: Sequence[Rollout]) -> list[Tensor]:
        """Return the rewards at the last token of each turn, [completions] tensors of [tokens of it]."""
        rows = []
        for rollout in rollouts:
            row = torch.zeros(len(rollout.completion))
            left = list(self.patterns)
            for turn in rollout.episode.turns:
                reached = [pattern for pattern in left if re.search(pattern, turn.response)]
                row[turn.stop - 1] += self.each * len(reached)
                left = [pattern for pattern in left if pattern not in reached]
            rows.append(row)
        return rows

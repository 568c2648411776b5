"""A table of what each category of error of a call is worth (the rewards of TL-Training, paper 382, 2412.15495).

Every turn is a call and has one category (`models.episodes.named_calls`); its worth stands at the turn's last token.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from models.bounds import Number
from models.episodes.hidden import hidden_of_each
from models.episodes.named_calls import Expected, category_of
from models.formulas.of_turns import turns_of
from models.loop.rollout import Rollout
from models.loop.slots import TokenReward
from models.loop.world import World
from models.parts import part


@dataclass(frozen=True, kw_only=True)
class ErrorTable:
    """Category -> worth."""

    right: Number = 1.0
    """A call as expected."""
    unreadable: Number = -1.0
    """No call."""
    unknown_tool: Number = -0.8
    """A tool that there is none of."""
    wrong_tool: Number = -0.6
    """Another tool."""
    missing_parameter: Number = -0.4
    """A parameter is not given."""
    unknown_parameter: Number = -0.4
    """One that the tool has not."""
    wrong_value: Number = -0.2
    """All but a value is right."""


@part("call_errors")
class CallErrors(TokenReward):
    """What is wrong with a call, by category."""

    needs_answers = True
    table: ErrorTable = ErrorTable()
    """What each category is worth."""

    def tokens(self, world: World, rollouts: Sequence[Rollout]) -> list[Tensor]:
        """The worth of each turn at its last token, zero elsewhere, [completions] tensors of [tokens of it]; NaN where
        the problem's calls cannot be read. A completion without turns that was cut holds no call."""
        every = hidden_of_each([rollout.problem for rollout in rollouts], Expected, "calls")
        return [self._row(rollout, expected) for rollout, expected in zip(rollouts, every, strict=True)]

    def _row(self, rollout: Rollout, expected: Expected | None) -> Tensor:
        if expected is None:
            return torch.full((len(rollout.completion),), torch.nan)
        row, worth = torch.zeros(len(rollout.completion)), vars(self.table)
        for turn in turns_of(rollout) if rollout.completion else ():
            whole = rollout.text if rollout.finished else ""
            row[turn.stop - 1] += worth[category_of(turn.said if rollout.turns else whole, expected)]
        return row

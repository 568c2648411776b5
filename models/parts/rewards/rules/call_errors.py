"""A table with the reward of each category of error of a call (the rewards of TL-Training, paper 382, 2412.15495).

Every turn is a call and has one category (`models.agents.play.named_calls`); its reward is given at the turn's last
token.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from models.agents.play.named_calls import Expected, category_of
from models.answers.hidden import hidden_of_each
from models.base.bounds import Number
from models.method.registry import part
from models.method.resources import RunResources
from models.method.reward import TokenReward
from models.method.rollout import Rollout
from models.parts.shared.of_turns import turns_of


@dataclass(frozen=True, kw_only=True)
class ErrorTable:
    """Reward of each category of a call."""

    right: Number = 1.0
    """The call is as expected."""
    unreadable: Number = -1.0
    """The turn cannot be read as a call."""
    unknown_tool: Number = -0.8
    """The tool does not exist."""
    wrong_tool: Number = -0.6
    """The tool exists but is not the expected one."""
    missing_parameter: Number = -0.4
    """A parameter is missing."""
    unknown_parameter: Number = -0.4
    """The tool does not have one of the parameters."""
    wrong_value: Number = -0.2
    """Only a value is wrong."""


@part("call_errors")
class CallErrors(TokenReward):
    """Reward of a call by the category of its error."""

    needs_answers = True
    table: ErrorTable = ErrorTable()
    """Reward of each category."""

    def tokens(self, resources: RunResources, rollouts: Sequence[Rollout]) -> list[Tensor]:
        """Return the reward of each turn at its last token, zero elsewhere, [completions] tensors of [tokens of it].

        It is NaN if the problem's calls cannot be read. A completion without turns that was cut has no call.
        """
        every = hidden_of_each([rollout.problem for rollout in rollouts], Expected, "calls")
        return [self._row(rollout, expected) for rollout, expected in zip(rollouts, every, strict=True)]

    def _row(self, rollout: Rollout, expected: Expected | None) -> Tensor:
        if expected is None:
            return torch.full((len(rollout.completion),), torch.nan)
        row, worth = torch.zeros(len(rollout.completion)), vars(self.table)
        for turn in turns_of(rollout) if rollout.completion else ():
            whole = rollout.text if rollout.finished else ""
            row[turn.stop - 1] += worth[category_of(turn.text if rollout.episode.turns else whole, expected)]
        return row

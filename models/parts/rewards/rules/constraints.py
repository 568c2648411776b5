"""Share of the instruction's constraints that a completion meets, checked by program (Light-IF, paper 257, 2508.03178).

    value = (constraints met) / (constraints) + bonus if all are met

A problem's answer is JSON, `{"constraints": [{"kind": "words", "most": 5}, {"kind": "forbids", "text": "red"}]}`, with
the kinds of `models.answers.constraints`. A completion is correct, also in evaluations and at the gate, if it meets
all of them.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from pydantic import NonNegativeFloat
from torch import Tensor

from models.answers.constraints import Constraints, met
from models.answers.hidden import hidden_of_each
from models.method.attempt import Attempt
from models.method.problem import Problem
from models.method.registry import part
from models.method.resources import RunResources
from models.method.reward import Reward
from models.method.rollout import Rollout


@part("constraints")
class ConstraintsMet(Reward):
    """Share of an instruction's constraints that is met; zero for a completion that was cut."""

    needs_answers = True
    verifies = True
    grades = True
    bonus: NonNegativeFloat = 0.0
    """Additional reward if all constraints are met."""

    def __call__(self, resources: RunResources, rollouts: Sequence[Rollout]) -> Tensor:
        """Return values in [0, 1 + bonus], [completions]; NaN if the problem's constraints cannot be read."""
        held = _held([Attempt.of(each) for each in rollouts])
        return torch.tensor([sum(each) / len(each) + self.bonus * all(each) if each else torch.nan for each in held])

    def right(self, attempts: Sequence[Attempt]) -> list[bool]:
        """Return whether each attempt ended and meets all constraints, [attempts]."""
        return [bool(each) and all(each) for each in _held(attempts)]

    def grade(self, attempts: Sequence[Attempt]) -> list[float]:
        """Return the share of its constraints that each attempt meets, [attempts]; zero if they cannot be read."""
        return [sum(each) / len(each) if each else 0.0 for each in _held(attempts)]

    def accepts(self, problems: Sequence[Problem]) -> list[bool]:
        """Return whether each problem has constraints that can be read, [problems]."""
        return [constraints is not None for constraints in hidden_of_each(problems, Constraints, "constraints")]


def _held(attempts: Sequence[Attempt]) -> list[list[bool]]:
    """Return whether each attempt meets each constraint, [attempts] of [constraints].

    A list is empty if the constraints cannot be read.
    """
    wanted = hidden_of_each([attempt.problem for attempt in attempts], Constraints, "constraints")
    return [
        [] if constraints is None else met(text if finished else "", constraints)
        for (_, text, finished), constraints in zip(attempts, wanted, strict=True)
    ]

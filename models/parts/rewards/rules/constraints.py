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
from models.method.attempt import Attempt
from models.method.registry import part
from models.method.resources import RunResources
from models.method.rollout import Rollout
from models.parts.shared.graded import HiddenTruth


@part("constraints")
class ConstraintsMet(HiddenTruth[Constraints]):
    """Share of an instruction's constraints that is met; zero for a completion that was cut."""

    _kind = Constraints
    verifies = True
    grades = True
    bonus: NonNegativeFloat = 0.0
    """Additional reward if all constraints are met."""

    def __call__(self, resources: RunResources, rollouts: Sequence[Rollout]) -> Tensor:
        """Return values in [0, 1 + bonus], [completions]; NaN if the problem's constraints cannot be read."""
        grades = self._grades([Attempt.of(each) for each in rollouts], unread=torch.nan)
        return torch.tensor([grade + self.bonus * (grade == 1.0) for grade in grades])

    def _grade(self, attempt: Attempt, truth: Constraints) -> float:
        held = met(attempt.text if attempt.finished else "", truth)
        return sum(held) / len(held)

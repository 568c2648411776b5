"""Common bases of rewards with partial credit, which can also decide in evaluations and at the gate.

HiddenTruth     a completion is compared with data in the problem's answer, JSON (`models.answers.hidden`)
MinimumGrade    a completion is right if its grade reaches the setting `right_from`
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar, Generic

import torch
from torch import Tensor

from models.answers.hidden import Hidden, Known, hidden_of_each
from models.method.attempt import Attempt
from models.method.problem import Problem
from models.method.resources import RunResources
from models.method.reward import Reward
from models.method.rollout import Rollout


class HiddenTruth(Reward, Generic[Known]):
    """Grade of a completion by the data of its problem's answer; a completion of grade 1 is right."""

    needs_answers = True
    _kind: ClassVar[type[Hidden]]
    """Model of the data."""

    @abstractmethod
    def _grade(self, attempt: Attempt, truth: Known) -> float:
        """Compute the grade of one attempt, in [0, 1]."""

    def __call__(self, resources: RunResources, rollouts: Sequence[Rollout]) -> Tensor:
        """Return the grades, [completions], in [0, 1]; NaN if the data of the problem cannot be read."""
        return torch.tensor(self._grades([Attempt.of(each) for each in rollouts], unread=torch.nan))

    def right(self, attempts: Sequence[Attempt]) -> list[bool]:
        """Return whether the grade of each attempt is 1, [attempts]."""
        return [grade == 1.0 for grade in self.grade(attempts)]

    def grade(self, attempts: Sequence[Attempt]) -> list[float]:
        """Return the grade of each attempt, [attempts], in [0, 1]; zero if the data of the problem cannot be read."""
        return self._grades(attempts, unread=0.0)

    def accepts(self, problems: Sequence[Problem]) -> list[bool]:
        """Return whether each problem has data that can be read, [problems]."""
        return [truth is not None for truth in self._truths(problems)]

    def _grades(self, attempts: Sequence[Attempt], unread: float) -> list[float]:
        truths = self._truths([attempt.problem for attempt in attempts])
        return [
            unread if truth is None else self._grade(attempt, truth)
            for attempt, truth in zip(attempts, truths, strict=True)
        ]

    def _truths(self, problems: Sequence[Problem]) -> list[Known | None]:
        kind: Any = self._kind
        return hidden_of_each(problems, kind, self.name)


class MinimumGrade(Reward):
    """Base class of rewards with a setting `right_from`, the minimum grade of a right completion."""

    right_from: float | None

    @property
    def verifies(self) -> bool:
        """Whether it decides in evaluations and at the gate."""
        return self.right_from is not None

    @property
    def grades(self) -> bool:
        """Whether evaluations also show the mean grade: true if it decides there."""
        return self.verifies

    def right(self, attempts: Sequence[Attempt]) -> list[bool]:
        """Return whether each attempt has a grade above 0 that reaches `right_from`, [attempts]; null: 1."""
        least = 1.0 if self.right_from is None else self.right_from
        return [grade >= least - 1e-9 and grade > 0 for grade in self.grade(attempts)]

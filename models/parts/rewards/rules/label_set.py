"""F-beta of the set of labels that a completion names (BASIR, paper 371, arXiv 2504.13189).

The problem's answer is JSON, `{"relevance": {"steel": 3, "farms": 1, "mines": 0}}`: names with a positive gain are its
labels, as for the reward `ndcg`. A completion names them as `#### steel, farms`, in any order. The formula and the
reading of lists are in `models.answers.listed`. With `right_from`, a completion whose F-beta reaches it is correct in
evaluations and at the gate; 1 means all labels and no other.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from pydantic import PositiveFloat
from torch import Tensor

from models.answers.hidden import hidden_of_each
from models.answers.listed import Relevance, f_beta, listed_names
from models.base.bounds import Share
from models.method.attempt import Attempt
from models.method.problem import Problem
from models.method.registry import part
from models.method.resources import RunResources
from models.method.reward import Reward
from models.method.rollout import Rollout


@part("label_set")
class LabelSet(Reward):
    """F-beta of the named labels; zero for a completion that was cut or names none."""

    needs_answers = True
    beta: PositiveFloat = 1.0
    """Weight of recall next to precision: 1 weighs both alike, 2 recall more."""
    right_from: Share | None = None
    """Minimum F-beta of a right completion, also in evaluations and at the gate; null: another part decides."""

    @property
    def verifies(self) -> bool:
        """Whether it decides in evaluations and at the gate."""
        return self.right_from is not None

    @property
    def grades(self) -> bool:
        """Whether evaluations also show the mean F-beta: true if it decides there."""
        return self.verifies

    def __call__(self, resources: RunResources, rollouts: Sequence[Rollout]) -> Tensor:
        """Return values in [0, 1], [completions]; NaN if the problem's labels cannot be read."""
        return torch.tensor(self._values([Attempt.of(each) for each in rollouts], unread=torch.nan))

    def stated(self, problem: Problem) -> str | None:
        """Return the labels in the form in which a completion names them; None if they cannot be read."""
        (truth,) = hidden_of_each([problem], Relevance, "label_set")
        return None if truth is None else f"#### {', '.join(truth.ranking)}"

    def right(self, attempts: Sequence[Attempt]) -> list[bool]:
        """Return whether the F-beta of each attempt reaches `right_from`, [attempts]; null: whether it is 1."""
        least = 1.0 if self.right_from is None else self.right_from
        return [value >= least - 1e-9 and value > 0 for value in self.grade(attempts)]

    def grade(self, attempts: Sequence[Attempt]) -> list[float]:
        """Return the F-beta of each attempt, [attempts], in [0, 1]; zero if the labels cannot be read."""
        return self._values(attempts, unread=0.0)

    def accepts(self, problems: Sequence[Problem]) -> list[bool]:
        """Return whether each problem has labels that can be read, [problems]."""
        return [truth is not None for truth in hidden_of_each(problems, Relevance, "label_set")]

    def _values(self, attempts: Sequence[Attempt], unread: float) -> list[float]:
        truths = hidden_of_each([attempt.problem for attempt in attempts], Relevance, "label_set")
        return [
            unread
            if truth is None
            else f_beta(listed_names(attempt.text), truth.labels, self.beta)
            if attempt.finished
            else 0.0
            for attempt, truth in zip(attempts, truths, strict=True)
        ]

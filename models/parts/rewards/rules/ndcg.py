"""nDCG of the ranking that a completion states (BASIR, paper 371, arXiv 2504.13189).

The problem's answer is JSON, `{"relevance": {"steel": 3, "farms": 1}}`: the gain of each name. A completion states its
ranking as `#### steel > farms`. The formula and the reading of lists are in `models.answers.listed`. With
`right_from`, a completion whose nDCG reaches it is correct in evaluations and at the gate.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from models.answers.hidden import hidden_of_each
from models.answers.listed import Relevance, listed_names, ndcg
from models.base.bounds import Positive, Share
from models.method.attempt import Attempt
from models.method.problem import Problem
from models.method.registry import part
from models.method.resources import RunResources
from models.method.reward import Reward
from models.method.rollout import Rollout


@part("ndcg")
class Ndcg(Reward):
    """Normalised discounted gain of the stated ranking; zero for a completion that was cut or states none."""

    needs_answers = True
    first: Positive | None = None
    """Number of places that count; null: all."""
    right_from: Share | None = None
    """Minimum nDCG of a right completion, also in evaluations and at the gate; null: another part decides."""

    @property
    def verifies(self) -> bool:
        """Whether it decides in evaluations and at the gate."""
        return self.right_from is not None

    @property
    def grades(self) -> bool:
        """Whether evaluations also show the mean nDCG: true if it decides there."""
        return self.verifies

    def __call__(self, resources: RunResources, rollouts: Sequence[Rollout]) -> Tensor:
        """Return values in [0, 1], [completions]; NaN if the problem's gains cannot be read."""
        return torch.tensor(self._values([Attempt.of(each) for each in rollouts], unread=torch.nan))

    def stated(self, problem: Problem) -> str | None:
        """Return the best ranking in the form in which a completion states it; None if it cannot be read."""
        (truth,) = hidden_of_each([problem], Relevance, "ndcg")
        return None if truth is None else f"#### {' > '.join(truth.ranking)}"

    def right(self, attempts: Sequence[Attempt]) -> list[bool]:
        """Return whether the nDCG of each attempt reaches `right_from`, [attempts]; null: whether it is 1."""
        least = 1.0 if self.right_from is None else self.right_from
        return [value >= least - 1e-9 and value > 0 for value in self.grade(attempts)]

    def grade(self, attempts: Sequence[Attempt]) -> list[float]:
        """Return the nDCG of each attempt, [attempts], in [0, 1]; zero if the gains cannot be read."""
        return self._values(attempts, unread=0.0)

    def accepts(self, problems: Sequence[Problem]) -> list[bool]:
        """Return whether each problem has gains that can be read, [problems]."""
        return [truth is not None for truth in hidden_of_each(problems, Relevance, "ndcg")]

    def _values(self, attempts: Sequence[Attempt], unread: float) -> list[float]:
        truths = hidden_of_each([attempt.problem for attempt in attempts], Relevance, "ndcg")
        return [
            unread
            if truth is None
            else ndcg(listed_names(attempt.text), truth.gains, self.first)
            if attempt.finished
            else 0.0
            for attempt, truth in zip(attempts, truths, strict=True)
        ]

"""nDCG of the ranking that a completion states (BASIR, paper 371, arXiv 2504.13189).

The problem's answer is JSON, `{"relevance": {"steel": 3, "farms": 1}}`: the gain of each name. A completion states its
ranking as `#### steel > farms`. The formula and the reading of lists are in `models.answers.listed`. With
`right_from`, a completion whose nDCG reaches it is correct in evaluations and at the gate.
"""

from __future__ import annotations

from models.answers.listed import Relevance, listed_names, ndcg
from models.base.bounds import Positive, Share
from models.method.attempt import Attempt
from models.method.problem import Problem
from models.method.registry import part
from models.parts.shared.graded import HiddenTruth, MinimumGrade


@part("ndcg")
class Ndcg(MinimumGrade, HiddenTruth[Relevance]):
    """Normalised discounted gain of the stated ranking; zero for a completion that was cut or states none."""

    _kind = Relevance
    first: Positive | None = None
    """Number of places that count; null: all."""
    right_from: Share | None = None
    """Minimum nDCG of a right completion, also in evaluations and at the gate; null: another part decides."""

    def stated(self, problem: Problem) -> str | None:
        """Return the best ranking in the form in which a completion states it; None if it cannot be read."""
        (truth,) = self._truths([problem])
        return None if truth is None else f"#### {' > '.join(truth.ranking)}"

    def _grade(self, attempt: Attempt, truth: Relevance) -> float:
        return ndcg(listed_names(attempt.text), truth.gains, self.first) if attempt.finished else 0.0

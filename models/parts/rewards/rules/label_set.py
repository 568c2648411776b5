"""F-beta of the set of labels that a completion names (BASIR, paper 371, arXiv 2504.13189).

The problem's answer is JSON, `{"relevance": {"steel": 3, "farms": 1, "mines": 0}}`: names with a positive gain are its
labels, as for the reward `ndcg`. A completion names them as `#### steel, farms`, in any order. The formula and the
reading of lists are in `models.answers.listed`. With `right_from`, a completion whose F-beta reaches it is correct in
evaluations and at the gate; 1 means all labels and no other.
"""

from __future__ import annotations

from pydantic import PositiveFloat

from models.answers.listed import Relevance, f_beta, listed_names
from models.base.bounds import Share
from models.method.attempt import Attempt
from models.method.problem import Problem
from models.method.registry import part
from models.parts.shared.graded import HiddenTruth, MinimumGrade


@part("label_set")
class LabelSet(MinimumGrade, HiddenTruth[Relevance]):
    """F-beta of the named labels; zero for a completion that was cut or names none."""

    _kind = Relevance
    beta: PositiveFloat = 1.0
    """Weight of recall next to precision: 1 weighs both alike, 2 recall more."""
    right_from: Share | None = None
    """Minimum F-beta of a right completion, also in evaluations and at the gate; null: another part decides."""

    def stated(self, problem: Problem) -> str | None:
        """Return the labels in the form in which a completion names them; None if they cannot be read."""
        (truth,) = self._truths([problem])
        return None if truth is None else f"#### {', '.join(truth.ranking)}"

    def _grade(self, attempt: Attempt, truth: Relevance) -> float:
        return f_beta(listed_names(attempt.text), truth.labels, self.beta) if attempt.finished else 0.0

"""F-beta of the set of labels that a completion names (BASIR, paper 371, arXiv 2504.13189).

The problem's answer is a list of labels such as `steel; farms`, or JSON, as for the reward `ndcg`, `{"relevance":
{"steel": 3, "farms": 1, "mines": 0}}`: names with a positive gain are its labels. A completion names them as `####
steel, farms`, in any order, or is itself the list. The formula and the reading of lists are in `models.answers.listed`.
With `right_from`, a completion whose F-beta reaches it is correct in evaluations and at the gate; 1 means all labels
and no other.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from pydantic import PositiveFloat

from models.answers.answers import expected_answer
from models.answers.exact import marked
from models.answers.listed import Relevance, f_beta, listed_names, names_in
from models.answers.marked_answers import without_reasoning
from models.base.bounds import Share
from models.method.attempt import Attempt
from models.method.problem import Problem
from models.method.registry import part
from models.parts.shared.graded import HiddenTruth, MinimumGrade


@part("label_set")
class LabelSet(MinimumGrade, HiddenTruth[Relevance]):
    """F-beta of the named labels; zero for a completion that was cut or names none."""

    _kind = Relevance
    reads: Literal["answer", "whole"] = "answer"
    """Text that names the labels: the answer that a completion states, or the whole completion."""
    beta: PositiveFloat = 1.0
    """Weight of recall next to precision: 1 weighs both alike, 2 recall more."""
    right_from: Share | None = None
    """Minimum F-beta of a right completion, also in evaluations and at the gate; null: another part decides."""

    def stated(self, problem: Problem) -> str | None:
        """Return the labels in the form in which a completion names them; None if they cannot be read."""
        (truth,) = self._truths([problem])
        if truth is None:
            return None
        labels = ", ".join(truth.ranking) if _is_json(problem) else expected_answer(problem.answer)
        return marked(labels) if self.reads == "answer" else labels

    def _truths(self, problems: Sequence[Problem]) -> list[Relevance | None]:
        read = super()._truths(as_json) if (as_json := list(filter(_is_json, problems))) else []
        known = dict(zip(as_json, read, strict=True))
        return [known[problem] if problem in known else _listed(problem) for problem in problems]

    def _grade(self, attempt: Attempt, truth: Relevance) -> float:
        if not attempt.finished:
            return 0.0
        whole = self.reads == "whole"
        names = names_in(without_reasoning(attempt.text)) if whole else listed_names(attempt.text)
        return f_beta(names, truth.labels, self.beta)


def _is_json(problem: Problem) -> bool:
    return problem.answer.lstrip().startswith("{")


def _listed(problem: Problem) -> Relevance | None:
    """Return the labels of an answer that is a list; None if it has none."""
    names = names_in(expected_answer(problem.answer))
    return Relevance(relevance=dict.fromkeys(names, 1.0)) if names else None

"""Equivalence of a formula of first-order logic and the problem's own (LogicLLaMA, paper 21, 2305.15541).

    no formula, or cut                  0
    not shown to be equivalent          partial * share of truth assignments of the atoms on which both agree
    equivalent, as z3 proves            1

The share leaves quantifiers out, as the paper's score by truth tables does; equivalence does not. The paper also
matches atoms whose names differ slightly, by edit distance; here they are different atoms. In evaluations and at the
gate, a completion is correct if its formula is equivalent.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor

from models.answers.answers import expected_answer, extract_answer
from models.answers.equivalence import shared_prover
from models.answers.exact import marked
from models.answers.logic import Tree, agreement, read_formula
from models.answers.marked_answers import without_reasoning
from models.method.attempt import Attempt
from models.method.problem import Problem
from models.method.registry import part
from models.method.resources import RunResources
from models.method.reward import Reward
from models.method.rollout import Rollout

_FormulaPair = tuple[Tree, Tree] | None
"""The formula of a completion and the problem's; None if either cannot be read."""


@part("logic")
class Logic(Reward):
    """Equivalence of the stated formula, or of the whole completion if none is marked, and the problem's answer."""

    needs_answers = True
    verifies = True
    partial: Annotated[float, Field(ge=0, lt=1)] = 0.5
    """Largest reward of a formula that is not equivalent."""
    seconds: Annotated[float, Field(gt=0, le=600)] = 5.0
    """Wall time for one formula, seconds, after which the solver's process is ended; its own limit of steps comes
    first."""

    def try_out(self) -> None:
        """Raise a UserError if the solver is missing."""
        shared_prover().start()

    def __call__(self, resources: RunResources, rollouts: Sequence[Rollout]) -> Tensor:
        """Return values in [0, 1], [completions]."""
        pairs = [_read_formulas(Attempt.of(each)) for each in rollouts]
        return torch.tensor(
            [
                0.0 if pair is None else 1.0 if proved else self.partial * agreement(*pair)
                for pair, proved in zip(pairs, self._proved(pairs), strict=True)
            ]
        )

    def stated(self, problem: Problem) -> str:
        """Return the formula after its mark."""
        return marked(problem.answer)

    def right(self, attempts: Sequence[Attempt]) -> list[bool]:
        """Return whether each attempt ended and states a formula that is proved to be equivalent, [attempts]."""
        return self._proved([_read_formulas(attempt) for attempt in attempts])

    def _proved(self, pairs: Sequence[_FormulaPair]) -> list[bool]:
        """Return whether each pair is proved to be equivalent, [completions].

        Equal pairs are proved once, and equal formulas need no proof.
        """
        unequal = list(dict.fromkeys(pair for pair in pairs if pair is not None and pair[0] != pair[1]))
        proofs = dict(zip(unequal, shared_prover().equivalent(unequal, self.seconds), strict=True)) if unequal else {}
        return [pair is not None and proofs.get(pair, pair[0] == pair[1]) for pair in pairs]


def _read_formulas(attempt: Attempt) -> _FormulaPair:
    if not attempt.finished:
        return None
    stated = read_formula(extract_answer(attempt.text) or without_reasoning(attempt.text))
    expected = read_formula(expected_answer(attempt.problem.answer))
    return None if stated is None or expected is None else (stated, expected)

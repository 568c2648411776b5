"""A boolean formula becomes shorter by a sequence of rewritings, which the policy chooses: logic synthesis.

    prompt   (a and b) or (a and not b) or (a and c)        8 gates
    turns    factor        5         the environment answers with the number of gates
             simplify      3
             absorb        3
    reward   (gates before - gates after) / gates before, at the end

The rewritings change the whole formula, and none of them changes its meaning (`models.agents.play.boolean_formulas`).
Some make a formula longer so that another one can shorten it. A sequence is what logic synthesis calls a recipe
(ABC-RL, paper 156, arXiv 2401.12205). The goal is the least number of gates that any sequence of this length reaches.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from models.agents.play.boolean_formulas import (
    REWRITINGS,
    Formula,
    least_size,
    parse_formula,
    rewritten,
    size_of,
    written,
)
from models.answers.hidden import Hidden, hidden
from models.base.errors import UserError
from models.method.environment import Environment, EnvironmentEpisode, Info
from models.method.problem import Problem
from models.method.registry import part


class HiddenFormula(Hidden):
    """Hidden answer of a problem: the formula."""

    formula: Annotated[str, Field(min_length=1, max_length=400)]
    """Text with names, and, or, not and brackets."""


@part("synthesis")
class Synthesis(Environment):
    """Rewritings of a boolean formula, which is to have few gates."""

    needs_answers = True
    steps: Annotated[int, Field(ge=1, le=6)] = 4
    """Number of rewritings of an episode; the turn `done` ends it earlier."""

    def open(self, problem: Problem) -> EnvironmentEpisode:
        """Open an episode about one problem, whose answer is `{"formula": "(a and b) or (a and c)"}`.

        Raises:
            UserError: the answer is none of this environment, or holds no formula with a gate.
        """
        try:
            formula = parse_formula(hidden(problem, HiddenFormula, self.name).formula)
        except ValueError as error:
            raise UserError(f"problem {problem.id}: {error}") from None
        if not size_of(formula):
            raise UserError(f"problem {problem.id}: its formula has no gate; give it one to shorten")
        return _Rewriting(formula, self.steps)


class _Rewriting:
    def __init__(self, formula: Formula, steps: int) -> None:
        self._first, self._steps = formula, steps
        self._formula, self._turns = formula, 0

    def reset(self, seed: int) -> tuple[str, Info]:
        self._formula, self._turns = self._first, 0
        return "", self._info()

    def _info(self) -> Info:
        solved = size_of(self._formula) == least_size(self._first, self._steps)
        return {"state": written(self._formula), "actions": (*REWRITINGS, "done"), "solved": solved}

    def step(self, turn: str) -> tuple[str, float, bool, bool, Info]:
        way = turn.strip()
        self._turns += 1
        known = way in REWRITINGS
        if known:
            self._formula = rewritten(self._formula, way)
        if way == "done" or self._turns == self._steps:
            before = size_of(self._first)
            return "", (before - size_of(self._formula)) / before, True, False, self._info()
        answer = str(size_of(self._formula)) if known else f"error: {', '.join(REWRITINGS)} or done"
        return answer, 0.0, False, False, self._info()

    def close(self) -> None:
        return None

"""A plan of small models that are applied one after the other; the result is compared with the expected one.

    prompt   shifted then dotted: s.j.w.f.s
    turn     undot shift                            the plan: names with spaces between
    reward   similarity of the result and the problem's answer

The reward is the metric of the task's result, not whether the plan is a known one (OpenAGI, paper 184, arXiv
2304.04370: reinforcement learning from task feedback). A plan with an unknown name earns nothing.
"""

from __future__ import annotations

from models.answers.likeness import likeness
from models.answers.repairs import REPAIRS
from models.base.bounds import Positive
from models.method.environment import Environment, EnvironmentEpisode, Info
from models.method.problem import Problem
from models.method.registry import part


@part("pipeline")
class Pipeline(Environment):
    """A plan of models, applied to the word after the prompt's colon."""

    needs_answers = True
    longest: Positive = 8
    """Maximum number of models in a plan; a longer one earns nothing."""

    def open(self, problem: Problem) -> EnvironmentEpisode:
        """Open an episode about one damaged word."""
        return _Carried(problem, self.longest)


class _Carried:
    def __init__(self, problem: Problem, longest: int) -> None:
        self._problem, self._longest = problem, longest

    def reset(self, seed: int) -> tuple[str, Info]:
        return "", {}

    def step(self, turn: str) -> tuple[str, float, bool, bool, Info]:
        result = carried_out(turn.split(), self._problem.prompt.rpartition(": ")[2], self._longest)
        if result is None:
            return "", 0.0, True, False, {"solved": False}
        score = likeness(result, self._problem.answer, "chrf")
        return "", score, True, False, {"solved": result == self._problem.answer}

    def close(self) -> None:
        return None


def carried_out(plan: list[str], word: str, longest: int) -> str | None:
    """Apply the models of a plan to a word, one after the other. Returns the result; None if the plan is invalid."""
    if not plan or len(plan) > longest or any(name not in REPAIRS for name in plan):
        return None
    for name in plan:
        word = REPAIRS[name](word)
    return word

"""Several answers of the policy, which must check each before the next, without feedback on whether it was right.

    #### 97        check:        #### 107

The two attempts of SCoRe (paper 121, arXiv 2409.12917). The reward of a turn is one if it states the problem's answer,
and the goal is that the last one does.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, ClassVar

from pydantic import Field

from models.answers.exact import is_right
from models.method.environment import Environment, EnvironmentEpisode, Info
from models.method.problem import Problem
from models.method.registry import part


@part("second_try")
class SecondTry(Environment):
    """Several attempts at one problem, without feedback between them."""

    needs_answers = True
    attempts: Annotated[int, Field(ge=2, le=100)] = 2
    """Turns of an episode."""
    renamed: ClassVar[Mapping[str, str]] = {"says": "follow_up"}
    follow_up: str = "check:"
    """Text that the policy reads after every attempt but the last."""

    def open(self, problem: Problem) -> EnvironmentEpisode:
        """Open an episode about one problem; every problem has an answer."""
        return _Attempts(problem.answer, self)


class _Attempts:
    def __init__(self, answer: str, settings: SecondTry) -> None:
        self._answer, self._settings, self._attempts_made = answer, settings, 0

    def reset(self, seed: int) -> tuple[str, Info]:
        self._attempts_made = 0
        return "", {}

    def step(self, turn: str) -> tuple[str, float, bool, bool, Info]:
        self._attempts_made += 1
        right = is_right(turn, self._answer, finished=True)
        if self._attempts_made < self._settings.attempts:
            return self._settings.follow_up, float(right), False, False, {}
        return "", float(right), True, False, {"solved": right}

    def close(self) -> None:
        return None

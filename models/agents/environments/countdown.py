"""Countdown: reach a number by an expression of given numbers, each used exactly once (the game of TinyZero).

    3 5 8 -> 64        3*8+5 | 29 | (3+5)*8

With several tries a miss is answered with the value of the expression, and an expression that breaks the rules with the
reason. Values are exact fractions; text after an equals sign is ignored.
"""

from __future__ import annotations

from models.agents.play.arithmetic_target import value_of
from models.agents.tools.calculator import written
from models.answers.hidden import Hidden, hidden
from models.base.bounds import Positive
from models.method.environment import Environment, EnvironmentEpisode, Info
from models.method.problem import Problem
from models.method.registry import part


class CountdownTarget(Hidden):
    """Hidden answer of a Countdown problem: the given numbers, and the number to reach."""

    numbers: tuple[int, ...]
    target: int


@part("countdown")
class Countdown(Environment):
    """An expression of given numbers with a given value."""

    needs_answers = True
    tries: Positive = 3
    """Expressions that the policy may try; a turn is one."""

    def open(self, problem: Problem) -> EnvironmentEpisode:
        """Open an episode about one problem, whose answer is `{"numbers": [...], "target": ...}`."""
        return _Counting(hidden(problem, CountdownTarget, self.name), self.tries)


class _Counting:
    def __init__(self, goal: CountdownTarget, tries: int) -> None:
        self._goal, self._tries_left = goal, tries
        self._responses: list[str] = []

    def reset(self, seed: int) -> tuple[str, Info]:
        return "", {"state": ""}

    def step(self, turn: str) -> tuple[str, float, bool, bool, Info]:
        self._tries_left -= 1
        lines = turn.strip().splitlines() or [""]
        try:
            value = value_of(lines[-1], self._goal.numbers)
        except ValueError as error:
            response = f"error: {error}"
        else:
            if value == self._goal.target:
                return "", 1.0, True, False, {"solved": True}
            response = written(value)
        self._responses.append(response)
        return response, 0.0, not self._tries_left, False, {"state": "; ".join(self._responses), "solved": False}

    def close(self) -> None:
        return None

"""A call of a tool, by its name and with named values, as the prompt requests; a wrong one is answered with its error.

    up at 7      {"name":"wake","arguments":{}} | error: missing parameter | {"name":"wake","arguments":{"hour":"7"}}

No tool is run: a call is compared with the expected one, which the problem's answer holds together with all available
tools. The errors are those of `models.agents.play.named_calls`; none of them reveals the right call.
"""

from __future__ import annotations

from models.agents.play.named_calls import Expected, category_of
from models.answers.hidden import hidden
from models.base.bounds import Positive
from models.method.environment import Environment, EnvironmentEpisode, Info
from models.method.problem import Problem
from models.method.registry import part


@part("calls")
class Calls(Environment):
    """A call of the right tool with the right values, as JSON."""

    needs_answers = True
    tries: Positive = 1
    """Calls that the policy may try; a turn is one."""

    def open(self, problem: Problem) -> EnvironmentEpisode:
        """Open an episode about one problem, whose answer is `{"tools": {...}, "name": ..., "arguments": {...}}`."""
        return _Calling(hidden(problem, Expected, self.name), self.tries)


class _Calling:
    def __init__(self, expected: Expected, tries: int) -> None:
        self._expected, self._tries_left = expected, tries
        self._responses: list[str] = []

    def reset(self, seed: int) -> tuple[str, Info]:
        return "", {"state": ""}

    def step(self, turn: str) -> tuple[str, float, bool, bool, Info]:
        self._tries_left -= 1
        category = category_of(turn, self._expected)
        if category == "right":
            return "", 1.0, True, False, {"solved": True}
        response = f"error: {category.replace('_', ' ')}"
        self._responses.append(response)
        return response, 0.0, not self._tries_left, False, {"state": "; ".join(self._responses), "solved": False}

    def close(self) -> None:
        return None

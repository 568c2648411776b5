"""An instruction in words becomes a sequence of calls of a robot's skills, one call a turn.

    prompt   get the mug from the couch and put it on the desk
    turns    {"name":"take","arguments":{"what":"cup","from":"sofa"}}    | next |
             {"name":"put","arguments":{"what":"cup","on":"desk"}}       | next |
             done
    reward   of each call: the mean agreement of name, parameters and values with the expected call, over their number

After tagE (paper 80): the tasks of an instruction are found in their order, each task is grounded in a skill, and each
argument in an object. A word may be another name of an object, and `it` is the object before. A call beyond the
expected ones costs as much as a right one earns. No skill is run. The agreement is that of the reward `call_match`
(`models.agents.play.named_calls`); the answers do not reveal whether a call was right.
"""

from __future__ import annotations

from statistics import fmean
from typing import Annotated

from pydantic import Field

from models.agents.play.named_calls import Expected, match
from models.answers.hidden import Hidden, hidden
from models.base.bounds import Positive
from models.base.errors import UserError
from models.method.environment import Environment, EnvironmentEpisode, Info
from models.method.problem import Problem
from models.method.registry import part


class ExpectedCall(Hidden):
    """One expected call."""

    name: str
    """Skill."""
    arguments: dict[str, str]
    """Object of each parameter."""


class ExpectedTasks(Hidden):
    """Hidden answer of a problem: the skills, and the expected calls in their order."""

    tools: dict[str, tuple[str, ...]]
    """Parameters of every skill, by its name."""
    calls: Annotated[tuple[ExpectedCall, ...], Field(min_length=1, max_length=16)]
    """Expected calls."""


@part("task_sequence")
class TaskSequence(Environment):
    """Calls of skills, one for each task of an instruction."""

    needs_answers = True
    spare: Positive = 1
    """Calls beyond the expected ones after which an episode ends without `done`."""

    def open(self, problem: Problem) -> EnvironmentEpisode:
        """Open an episode about one problem, whose answer is `{"tools": {...}, "calls": [{"name", "arguments"}]}`.

        Raises:
            UserError: the answer is none of this environment, or a call names no skill.
        """
        known = hidden(problem, ExpectedTasks, self.name)
        unknown = next((call.name for call in known.calls if call.name not in known.tools), None)
        if unknown is not None:
            raise UserError(f"problem {problem.id}: the call {unknown!r} is none of its tools; add it to them")
        expected = [Expected(tools=known.tools, name=call.name, arguments=call.arguments) for call in known.calls]
        return _Calling(expected, self.spare)


class _Calling:
    def __init__(self, expected: list[Expected], spare: int) -> None:
        self._expected, self._spare = expected, spare
        self._turns: list[str] = []
        self._right = 0

    def reset(self, seed: int) -> tuple[str, Info]:
        self._turns, self._right = [], 0
        return "", self._info()

    def _info(self, over: bool = False) -> Info:
        whole = over and self._right == len(self._turns) == len(self._expected)
        return {"state": "\n".join(self._turns), "solved": whole}

    def step(self, turn: str) -> tuple[str, float, bool, bool, Info]:
        count, number = len(self._expected), len(self._turns)
        if turn.strip() == "done":
            return "", 0.0, True, False, self._info(over=True)
        self._turns.append(turn.strip())
        reward = -1.0
        if number < count:
            parts = match(turn, self._expected[number])
            reward = fmean((parts.name, parts.parameters, parts.values))
            self._right += reward == 1.0
        over = len(self._turns) == count + self._spare
        return "next", reward / count, over, False, self._info(over)

    def close(self) -> None:
        return None

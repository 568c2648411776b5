"""The policy calls tools and then answers (Toolformer, arXiv 2302.04761; ReAct, arXiv 2210.03629).

A turn whose last line begins with a tool's name and a colon is a call, and the policy reads what the tool answers:

    calculator: 47 * 83
    3901

So is one call in the form that chat templates teach, {"name": ..., "arguments": ...} between <tool_call> and
</tool_call>. Any other turn is the policy's answer and ends the episode. What a tool refuses, or a name that there is
no tool of, is answered by a line that begins with `error:`; the episode goes on.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import field
from typing import TYPE_CHECKING, Any, NamedTuple

from models.episodes.environment import Environment, Info, Opened
from models.episodes.tool import Tool, ToolError
from models.loop.rollout import Problem
from models.part_types import slot_type
from models.parts import default_part, part

if TYPE_CHECKING:
    Chosen = list[Tool]
else:
    Chosen = slot_type("tool")

_LINE = re.compile(r"^\s*([a-z][a-z0-9_]*)\s*:\s*(.*)$", re.IGNORECASE)
_TAGGED = re.compile(r"<tool_call>\s*(\{.*\})\s*</tool_call>\s*\Z", re.DOTALL)


class Call(NamedTuple):
    """What a turn asks for."""

    tool: str
    argument: str


def read_call(turn: str, names: tuple[str, ...]) -> Call | None:
    """The call that a turn ends with; None where it calls nothing.

    Args:
        turn: what the policy said.
        names: of the tools that there are; a line with any other name before a colon is no call.
    """
    if tagged := _TAGGED.search(turn):
        try:
            asked = json.loads(tagged[1])
        except ValueError:
            return Call("", "")
        arguments = asked.get("arguments", "")
        if isinstance(arguments, Mapping):
            values = [str(value) for value in arguments.values()]
            arguments = values[0] if len(values) == 1 else json.dumps(arguments)
        return Call(str(asked.get("name", "")), str(arguments))
    lines = turn.strip().splitlines()
    if lines and (line := _LINE.match(lines[-1])) and line[1] in names:
        return Call(line[1], line[2])
    return None


@part("tools")
class Tools(Environment):
    """Tools that the policy may call before it answers."""

    tool: Chosen = field(default_factory=lambda: [default_part("tool")()])
    """Which; a list of parts."""

    def open(self, problem: Problem) -> Opened:
        """An episode about one problem; every problem has some."""
        return _Calls({tool.name: tool for tool in self.tool})


class _Calls:
    def __init__(self, tools: Mapping[str, Tool]) -> None:
        self._tools = tools

    def reset(self, seed: int) -> tuple[str, Info]:
        return "", {}

    def step(self, turn: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        call = read_call(turn, tuple(self._tools))
        if call is None:
            return "", 0.0, True, False, {}
        tool = self._tools.get(call.tool)
        if tool is None:
            named = ", ".join(self._tools)
            return f"error: no tool is called {call.tool!r}; there are {named}", 0.0, False, False, {"failed": True}
        try:
            return tool.call(call.argument), 0.0, False, False, {}
        except ToolError as error:
            return f"error: {error}", 0.0, False, False, {"failed": True}

    def close(self) -> None:
        return None

"""The call at the end of a turn, as text or in the form of chat templates (`models.agents.environments.tools`)."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping
from typing import NamedTuple

_LINE = re.compile(r"^\s*([a-z][a-z0-9_]*)\s*:\s*(.*)$", re.IGNORECASE)
_TAGGED = re.compile(r"<tool_call>\s*(\{.*\})\s*</tool_call>\s*\Z", re.DOTALL)


class ToolCall(NamedTuple):
    """The tool that a turn calls, and its argument."""

    tool: str
    argument: str


def read_call(turn: str, names: Collection[str]) -> ToolCall | None:
    """Return the call that a turn ends with; None if it calls nothing.

    Args:
        turn: text of the policy's turn.
        names: names of the available tools; a line with another name before the colon is not a call.
    """
    if tagged := _TAGGED.search(turn):
        try:
            call = json.loads(tagged[1])
        except (ValueError, RecursionError):
            return ToolCall("", "")
        arguments = call.get("arguments", "")
        if isinstance(arguments, Mapping):
            values = [str(value) for value in arguments.values()]
            arguments = values[0] if len(values) == 1 else json.dumps(arguments)
        return ToolCall(str(call.get("name", "")), str(arguments))
    lines = turn.strip().splitlines()
    if lines and (line := _LINE.match(lines[-1])) and line[1] in names:
        return ToolCall(line[1], line[2])
    return None

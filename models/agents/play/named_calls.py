"""Calls by name with named values, as JSON, and the distance of a call from the expected one.

    {"name":"weather","arguments":{"city":"rome","day":"mon"}}      alone or between <tool_call> and </tool_call>

The categories of error, of which a call has the first that holds:

    unreadable           not a JSON object with a name and an object of arguments
    unknown_tool         the name of a tool that does not exist
    wrong_tool           the name of another tool
    missing_parameter    an expected parameter is not given
    unknown_parameter    a parameter that is not expected is given
    wrong_value          all names are right, a value is not
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

from models.answers.hidden import Hidden

Category = Literal[
    "right", "unreadable", "unknown_tool", "wrong_tool", "missing_parameter", "unknown_parameter", "wrong_value"
]
"""Category of a call; the errors in the order in which they are checked."""

LONGEST = 2000
"""Maximum length of a call, characters; longer texts are not parsed."""


class Expected(Hidden):
    """Hidden answer of a problem: the available tools, and the expected call."""

    tools: dict[str, tuple[str, ...]]
    """Parameters of every available tool, by its name."""
    name: str
    arguments: dict[str, str]


class NamedCall(NamedTuple):
    """A parsed call."""

    name: str
    arguments: Mapping[str, str]


def read_named_call(turn: str) -> NamedCall | None:
    """Parse a turn as a call; None: it is not a call. Values are compared as text: 4 and "4" are the same."""
    text = turn.strip()
    if text.startswith("<tool_call>") and text.endswith("</tool_call>"):
        text = text.removeprefix("<tool_call>").removesuffix("</tool_call>").strip()
    if len(text) > LONGEST:
        return None
    try:
        call: Any = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if not isinstance(call, dict) or set(call) != {"name", "arguments"}:
        return None
    name, arguments = call["name"], call["arguments"]
    if not isinstance(name, str) or not isinstance(arguments, dict):
        return None
    return NamedCall(
        name, {key: value if isinstance(value, str) else json.dumps(value) for key, value in arguments.items()}
    )


def category_of(turn: str, expected: Expected) -> Category:
    """Return the category of a turn as a call."""
    call = read_named_call(turn)
    if call is None:
        return "unreadable"
    if call.name not in expected.tools:
        return "unknown_tool"
    if call.name != expected.name:
        return "wrong_tool"
    if set(expected.arguments) - set(call.arguments):
        return "missing_parameter"
    if set(call.arguments) - set(expected.arguments):
        return "unknown_parameter"
    return "right" if call.arguments == expected.arguments else "wrong_value"


class Match(NamedTuple):
    """Agreement of a call with the expected one, each part in [0, 1]."""

    format: float
    """Whether it could be parsed."""
    name: float
    parameters: float
    """Share of common names among all parameter names of both calls; 1 if there are none."""
    values: float
    """Share of the expected parameters that have the expected value; 1 if there are none."""


def match(turn: str, expected: Expected) -> Match:
    """Compare each part of a turn's call with the expected call."""
    call = read_named_call(turn)
    if call is None:
        return Match(0.0, 0.0, 0.0, 0.0)
    ours, theirs = set(call.arguments), set(expected.arguments)
    equal = sum(call.arguments.get(name) == value for name, value in expected.arguments.items())
    parameters = len(ours & theirs) / len(ours | theirs) if ours | theirs else 1.0
    return Match(1.0, float(call.name == expected.name), parameters, equal / len(theirs) if theirs else 1.0)

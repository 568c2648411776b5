"""Calls of functions in a reply of the policy, in the two forms that open models are trained on.

    Hermes, Qwen    <tool_call>{"name": ..., "arguments": {...}}</tool_call>, one or more
    Llama 3         {"name": ..., "parameters": {...}}, alone or several with semicolons between them

vLLM names them `hermes` and `llama3_json`. Either form is read, and `arguments` and `parameters` mean the same. A reply
in which one call is malformed, or calls a function that the request does not offer, has no calls: all of it is text.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, NoReturn

from models.agents.gateway.tool_form import CALL, CALL_END

_PYTHON_TAG = "<|python_tag|>"
_BLANK = re.compile(r"[ \t\n\r]*")


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not JSON")


_DECODER = json.JSONDecoder(parse_constant=_refuse)


@dataclass(frozen=True)
class ParsedCall:
    """A call in a text."""

    name: str
    arguments: str
    """Text of a JSON object, as the policy wrote it."""
    start: int | None
    """Index of the arguments in the text; None if they were a JSON string, whose content they are."""


@dataclass(frozen=True)
class ParsedReply:
    """A reply in parts."""

    content: str
    """Text before the calls, or the whole text."""
    calls: tuple[ParsedCall, ...] = ()


def parse_reply(text: str, names: Collection[str], *, finished: bool) -> ParsedReply:
    """Parse a reply.

    Args:
        text: what the policy wrote.
        names: functions that it may call.
        finished: whether the reply ended by itself; the last closing tag may then be missing.
    """
    if not names:
        return ParsedReply(text)
    try:
        at = text.find(CALL)
        if at >= 0:
            return ParsedReply(text[:at] if text[:at].strip() else "", _tagged(text, at, names, finished))
        return ParsedReply("", _bare(text, names))
    except (ValueError, RecursionError):
        return ParsedReply(text)


def _tagged(text: str, at: int, names: Collection[str], finished: bool) -> tuple[ParsedCall, ...]:
    calls = []
    while at >= 0:
        call, stop = _call(text, _skip(text, at + len(CALL)), names)
        calls.append(call)
        stop = _skip(text, stop)
        if not text.startswith(CALL_END, stop) and not (finished and stop == len(text)):
            raise ValueError("a call is not closed")
        at = text.find(CALL, stop)
    return tuple(calls)


def _bare(text: str, names: Collection[str]) -> tuple[ParsedCall, ...]:
    calls: list[ParsedCall] = []
    at = _skip(text, 0)
    if text.startswith(_PYTHON_TAG, at):
        at = _skip(text, at + len(_PYTHON_TAG))
    while at < len(text) or not calls:
        call, stop = _call(text, at, names)
        calls.append(call)
        at = _skip(text, stop)
        if text[at : at + 1] == ";":
            at = _skip(text, at + 1)
    return tuple(calls)


def _call(text: str, at: int, names: Collection[str]) -> tuple[ParsedCall, int]:
    """Return the call at an index, and the index after it.

    Raises:
        ValueError: there is none.
    """
    members, end = _members(text, at)
    name, arguments = members.get("name"), members.get("arguments") or members.get("parameters")
    if name is None or arguments is None or name[0] not in [*names]:
        raise ValueError("no call of an offered function")
    value, start, stop = arguments
    if isinstance(value, str):
        if not isinstance(_DECODER.decode(value), dict):
            raise ValueError("arguments are an object")
        return ParsedCall(str(name[0]), value, None), end
    if not isinstance(value, dict):
        raise ValueError("arguments are an object")
    return ParsedCall(str(name[0]), text[start:stop], start), end


def _members(text: str, at: int) -> tuple[dict[str, tuple[Any, int, int]], int]:
    """Return the members of the JSON object at an index, each with its place, and the index after the object.

    Raises:
        ValueError: the text has no object there.
    """
    if text[at : at + 1] != "{":
        raise ValueError("no object")
    members: dict[str, tuple[Any, int, int]] = {}
    at = _skip(text, at + 1)
    if text[at : at + 1] == "}":
        return members, at + 1
    while True:
        key, at = _DECODER.raw_decode(text, at)
        at = _skip(text, at)
        if not isinstance(key, str) or text[at : at + 1] != ":":
            raise ValueError("no member")
        start = _skip(text, at + 1)
        value, stop = _DECODER.raw_decode(text, start)
        members[key] = (value, start, stop)
        at = _skip(text, stop)
        if text[at : at + 1] == "}":
            return members, at + 1
        if text[at : at + 1] != ",":
            raise ValueError("members are not separated")
        at = _skip(text, at + 1)


def _skip(text: str, at: int) -> int:
    """Return the index of the first character that is not blank."""
    match = _BLANK.match(text, at)
    return at if match is None else match.end()

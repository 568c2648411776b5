"""Prompts and answers that are written as messages, as TRL's data sets have them, read as the texts that they hold.

    messages   [{"role": "user", "content": "2 + 3 ?"}, {"role": "assistant", "content": "5"}]
    prompt     [{"role": "user", ...}]            completion, chosen, rejected   [{"role": "assistant", ...}]

A prompt is one message of the user; a system message before it stands above it, a blank line between, as chat templates
without a system role have it. With `policy.chat` the template is put around the text again. An answer is one message of
the assistant. Where `chosen` and `rejected` begin with the prompt, it is taken from there. A conversation of several
turns is refused: no text stands for it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Any

from models.datasets.raw import RawRow
from models.errors import UserError, listed

COLUMN = "messages"
"""The column of a whole conversation; it stands for the prompt and, where the assistant speaks last, the completion."""

ANSWERS = ("completion", "chosen", "rejected")


def is_conversation(value: Any) -> bool:
    """Whether a value is a list of messages, each with `role` and `content`."""
    return (
        isinstance(value, list)
        and bool(value)
        and all(isinstance(turn, dict) and {"role", "content"} <= turn.keys() for turn in value)
    )


def columns_of_messages(columns: Mapping[str, str], first: RawRow, present: AbstractSet[str]) -> dict[str, str]:
    """A format's `columns`, field -> column, with the columns of messages where the rows have no prompt of its own.

    Args:
        columns: of the format.
        first: the first row.
        present: columns that any row has.
    """
    named = dict(columns)
    if "prompt" not in named or named["prompt"] in present:
        return named
    if is_conversation(first.values.get(named.get("chosen", ""))):
        named["prompt"] = named["chosen"]
    elif COLUMN in present:
        named["prompt"] = COLUMN
        if "completion" in named and named["completion"] not in present:
            named["completion"] = COLUMN
    return named


def read_fields(raw: RawRow, columns: Mapping[str, str]) -> dict[str, str]:
    """The text of each field of a row; messages become the texts that they hold.

    Args:
        raw: the row.
        columns: field -> column.

    Raises:
        UserError: a value is no text, or messages that no prompt or answer can be read from.
    """
    fields: dict[str, str] = {}
    for field, column in columns.items():
        value: Any = raw.values.get(column)
        if isinstance(value, str) or not is_conversation(value):
            fields[field] = raw.as_text(value, column)
        elif field == "prompt":
            fields[field] = _prompt(raw, column, _asked(value))
        elif field in ANSWERS:
            fields[field] = _answer(raw, column, value)
        else:
            raise UserError(f"{raw.place}: column '{column}' holds messages, which the field '{field}' cannot be")
    if "rejected" in columns and columns.get("prompt") == columns.get("chosen"):
        rejected: Any = raw.values.get(columns["rejected"])
        if not is_conversation(rejected) or _asked(rejected) != _asked(raw.values[columns["chosen"]]):
            raise UserError(f"{raw.place}: the messages of chosen and rejected do not begin with the same prompt")
    return fields


def _asked(messages: Sequence[Mapping[str, Any]]) -> Sequence[Mapping[str, Any]]:
    """The messages before the assistant's last word."""
    return messages[:-1] if messages[-1]["role"] == "assistant" else messages


def _prompt(raw: RawRow, column: str, messages: Sequence[Mapping[str, Any]]) -> str:
    roles = [str(turn["role"]) for turn in messages]
    if roles not in (["user"], ["system", "user"]):
        raise UserError(
            f"{raw.place}: column '{column}' asks in the roles {listed(roles)}; "
            "a prompt is one user message, a system message before it at most"
        )
    return "\n\n".join(_content(raw, column, turn) for turn in messages)


def _answer(raw: RawRow, column: str, messages: Sequence[Mapping[str, Any]]) -> str:
    roles = [str(turn["role"]) for turn in messages]
    if roles[-1] != "assistant" or "assistant" in roles[:-1]:
        raise UserError(
            f"{raw.place}: column '{column}' answers in the roles {listed(roles)}; an answer is one assistant message"
        )
    return _content(raw, column, messages[-1])


def _content(raw: RawRow, column: str, message: Mapping[str, Any]) -> str:
    """The text of a message; parts of type text are joined.

    Raises:
        UserError: it calls a tool, or a part of it is no text.
    """
    content = message["content"]
    if message.get("tool_calls"):
        raise UserError(f"{raw.place}: column '{column}' calls a tool, which is not read")
    if isinstance(content, list):
        parts = [part.get("text") if isinstance(part, dict) else None for part in content]
        if not all(isinstance(part, str) for part in parts):
            raise UserError(f"{raw.place}: column '{column}' holds a message with a part that is no text")
        content = "".join(str(part) for part in parts)
    return raw.as_text(content, column)

"""Messages that a table stores as text: JSON, or the Python representation of lists and dictionaries.

A text is parsed as messages only if all of it is a list of messages (`role` and `content`, or `from` and `value`) or
one such message. Any other text stays a text, whatever it begins with. A text that begins like messages and is cut off
is refused: training on it would show the answer in the prompt.
"""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Mapping
from typing import Any

from models.base.errors import UserError
from models.base.strict_json import JsonError, parse_json

BEGINS = re.compile(r"""(array\()?\s*(\[?)\s*\{\s*(["'])(role|content|from|value)\3\s*:\s*["'\[N]""")
"""Beginning of a list of messages, or of a single message."""
LIST = 2
"""Number of the group that matches the bracket of a list."""
PARTS = ("text", "input_text", "output_text", "image", "image_url", "audio", "video")
"""Types of the parts of a message."""
LONGEST_PYTHON = 1 << 20
"""Largest number of characters of a text that is passed to the Python parser."""
KNOWN_ROLES = ("system", "developer", "user", "assistant", "tool", "function", "human", "gpt")
"""Roles of a single message; a list may have any."""
STARTS = ("[", "{", '"', "array(")
UNREAD = object()


def may_be_messages(value: Any) -> bool:
    """Return whether a value may be messages: it is not text, or is text that begins like a list."""
    return not isinstance(value, str) or value[:1].isspace() or value.startswith(STARTS)


def parsed_messages(text: str, where: str) -> Any:
    """Parse a text that consists of messages; any other text is returned unchanged.

    Args:
        text: text of one cell.
        where: file, row and column, for the error message.

    Raises:
        UserError: the text begins like messages and is neither JSON nor a Python literal, or it is the parts of a
            message without a role.
    """
    whole = text.strip()
    if not whole.startswith(STARTS):
        return text
    try:
        value = parse_json(whole)
    except JsonError as error:
        begins = BEGINS.match(whole)
        if not begins:
            return text
        value = _python(whole)
        if value is UNREAD:
            if not begins[LIST] or _is_followed_by_text(whole):
                return text
            raise UserError(
                f"{where} begins like messages and cannot be read as JSON ({error.reason}) or as a Python literal; "
                "write the messages as JSON"
            ) from None
    if isinstance(value, str):  # encoded as JSON twice
        return text if not BEGINS.match(value.strip()) else parsed_messages(value, where)
    if isinstance(value, list) and value and all(_is_part(part) for part in value):
        raise UserError(f"{where} holds the parts of a message without its role; write the text alone, or a message")
    return value if _is_messages(value) else text


def _is_messages(value: Any) -> bool:
    if isinstance(value, Mapping):
        role = value.get("role", value.get("from"))
        return _is_message(value) and role in KNOWN_ROLES
    return isinstance(value, list) and bool(value) and all(_is_message(turn) for turn in value)


def _is_message(turn: Any) -> bool:
    keys = turn.keys() if isinstance(turn, Mapping) else set()
    return any(keys >= needed for needed in ({"role", "content"}, {"role", "tool_calls"}, {"from", "value"}))


def _is_part(part: Any) -> bool:
    return isinstance(part, Mapping) and part.get("type") in PARTS and len(part) > 1 and "role" not in part


def _python(text: str) -> Any:
    """Return the value of a Python literal; UNREAD if the text is not one. Nothing is executed."""
    if len(text) > LONGEST_PYTHON:
        return UNREAD
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # warnings about escapes that Python does not know
        try:
            tree = ast.parse(text, mode="eval")
            if any(_has_repeated_key(node) for node in ast.walk(tree)):
                return UNREAD
            return ast.literal_eval(tree)
        except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
            return UNREAD


def _has_repeated_key(node: ast.AST) -> bool:
    keys = [key.value for key in node.keys if isinstance(key, ast.Constant)] if isinstance(node, ast.Dict) else []
    return len(set(keys)) < len(keys)


def _is_followed_by_text(text: str) -> bool:
    """Return whether a text begins with complete messages and is followed by more text."""
    end = max(text.rfind("]"), text.rfind("}")) + 1
    if not text[end:].strip():
        return False
    try:
        return isinstance(parse_json(text[:end]), (list, dict))
    except JsonError:
        return _python(text[:end]) is not UNREAD

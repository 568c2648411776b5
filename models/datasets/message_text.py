"""Messages that a table holds as text: JSON, or Python's own writing of lists and dictionaries.

A text is read as messages only where all of it is a list of messages (`role` and `content`, or `from` and `value`) or
one such message. Any other text stays a text, whatever it begins with. A text that begins like messages and breaks off
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
"""How a list of messages begins, or one message alone."""
LIST = 2
"""The group that holds the bracket of a list."""
PARTS = ("text", "input_text", "output_text", "image", "image_url", "audio", "video")
"""Types of a message's parts."""
LONGEST_PYTHON = 1 << 20
"""Characters of a text that Python's own reader is given."""
KNOWN_ROLES = ("system", "developer", "user", "assistant", "tool", "function", "human", "gpt")
"""Roles of a single message; a list may have any."""
STARTS = ("[", "{", '"', "array(")
UNREAD = object()


def may_be_messages(value: Any) -> bool:
    """Whether a value needs a closer look: it is not text, or is text that begins like a list."""
    return not isinstance(value, str) or value[:1].isspace() or value.startswith(STARTS)


def parsed_messages(text: str, where: str) -> Any:
    """The value of a text that is messages; the text itself where it is anything else.

    Args:
        text: of one cell.
        where: file, row and column, for the message.

    Raises:
        UserError: it begins like messages, and is neither JSON nor a Python literal.
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
    if isinstance(value, str):  # written as JSON twice
        return text if not BEGINS.match(value.strip()) else parsed_messages(value, where)
    if isinstance(value, list) and value and all(_is_part(part) for part in value):
        raise UserError(f"{where} holds the parts of a message and not whose it is; write the text alone, or a message")
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
    """The value of a Python literal; UNREAD where it is none. Nothing is executed."""
    if len(text) > LONGEST_PYTHON:
        return UNREAD
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of an escape that Python does not know
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
    """Whether a text begins with whole messages, and more text follows."""
    end = max(text.rfind("]"), text.rfind("}")) + 1
    if not text[end:].strip():
        return False
    try:
        return isinstance(parse_json(text[:end]), (list, dict))
    except JsonError:
        return _python(text[:end]) is not UNREAD

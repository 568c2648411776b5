"""Strict JSON parsing: input that a lenient parser would silently drop or change raises an error with the reason.

Beyond what Python's parser refuses, these are errors: a key that occurs twice in one object (the first value would be
lost), and whole numbers of thousands of digits. `NaN` is accepted, because writers of tables use it for missing values.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from typing import Any

from models.base.errors import shortened


class JsonError(ValueError):
    """Error for an invalid text, with the `reason`; `line` counts from 1, and is 1 if the line is unknown."""

    def __init__(self, reason: str, line: int = 1) -> None:
        super().__init__(reason)
        self.reason, self.line = reason, line


def parse_json(text: str) -> Any:
    """Return the value of a JSON text.

    Raises:
        JsonError: it is not valid JSON, a key occurs twice, it is nested too deeply, or a number is too long.
    """
    try:
        return _DECODER.decode(text)
    except json.JSONDecodeError as error:
        raise JsonError(error.msg, error.lineno) from None
    except RecursionError:
        raise JsonError("nested too deeply") from None


def _unique(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    entries = dict(pairs)
    if len(entries) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise JsonError(f"the key '{shortened(twice)}' stands twice in one object")
    return entries


def _whole(digits: str) -> int:
    if len(digits) > sys.get_int_max_str_digits() > 0:
        raise JsonError(f"a whole number of {len(digits)} digits")
    return int(digits)


_DECODER = json.JSONDecoder(object_pairs_hook=_unique, parse_int=_whole)
"""Decoder, made once: json.loads would make one for every text, which takes as long as parsing a short text."""

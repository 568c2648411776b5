"""Regular expressions of a recipe."""

from __future__ import annotations

import re

from models.base.errors import UserError


def compiled(pattern: str, where: str, flags: int = 0) -> re.Pattern[str]:
    """Compile a search pattern; `where`: the recipe's key.

    Raises:
        UserError: it is not a regular expression.
    """
    try:
        return re.compile(pattern, flags)
    except re.error as error:
        raise UserError(f"{where}: {pattern!r} is not a regular expression ({error})") from None


def matched(pattern: re.Pattern[str], text: str) -> str:
    """Return the first part of a text that a pattern matches, else nothing; the whole text for an empty pattern."""
    if not pattern.pattern:
        return text
    match = pattern.search(text)
    return match.group() if match else ""

"""Numbers that somebody else gave, a program, an environment or a server: taken where training can hold them."""

from __future__ import annotations

from typing import Any

from models.errors import shortened

LARGEST = 3.4028234663852886e38
"""The largest number of float32, in which rewards are held."""


def finite(value: Any) -> float:
    """A number that is given, as float32 can hold it.

    Raises:
        ValueError: it is none, stands for none or is too large; the text shows it.
    """
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):  # a whole number may have any number of digits
        number = float("nan")
    if not abs(number) <= LARGEST:
        raise ValueError(f"{_shown(value)} is no finite number")
    return number


def finite_of_json(value: Any) -> float:
    """As `finite`, of a value that JSON holds: a text and a truth value are no number."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"{_shown(value)} is no finite number")
    return finite(value)


def _shown(value: Any) -> str:
    try:
        return shortened(repr(value))
    except ValueError:  # Python writes no whole number of thousands of digits
        return f"a {type(value).__name__} that is too long to write"

"""Numbers from outside (a program, an environment or a server), accepted only if training can represent them."""

from __future__ import annotations

from typing import Any

from models.base.errors import shortened

LARGEST = 3.4028234663852886e38
"""The largest number of float32, in which rewards are stored."""


def finite(value: Any) -> float:
    """Convert a value to a float that is finite in float32.

    Raises:
        ValueError: it is not a number, is NaN or infinite, or is too large; the message shows it.
    """
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):  # an integer may have any number of digits
        number = float("nan")
    if not abs(number) <= LARGEST:
        raise ValueError(f"{_shown(value)} is not a finite number")
    return number


def finite_of_json(value: Any) -> float:
    """Convert a number from JSON as `finite` does, but refuse strings and booleans.

    Raises:
        ValueError: see `finite`; or it is a string or a boolean.
    """
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"{_shown(value)} is not a finite number")
    return finite(value)


def _shown(value: Any) -> str:
    try:
        return shortened(repr(value))
    except ValueError:  # Python does not print an integer of thousands of digits
        return f"a {type(value).__name__} that is too long to write"

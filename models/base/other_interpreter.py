"""Environment variables for a program that another Python interpreter runs."""

from __future__ import annotations

import os
from collections.abc import Sequence

_OWN = ("PYTHON", "VIRTUAL_ENV")
"""Beginnings of the names of variables that belong to this interpreter."""


def variables_for_other_interpreter(dropped: Sequence[str] = ()) -> dict[str, str]:
    """Return the environment variables without those of this interpreter.

    Args:
        dropped: beginnings of the names of further variables to leave out, in capital letters.
    """
    left_out = (*_OWN, *dropped)
    return {name: value for name, value in os.environ.items() if not name.upper().startswith(left_out)}

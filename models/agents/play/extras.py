"""Packages that some environments need and the main locks leave out: each has a lock of its own, installed on top."""

from __future__ import annotations

import importlib
import importlib.util
from typing import Any

from models.base.errors import UserError


def require_extra(name: str) -> None:
    """Raise an error if the package of the environment of the same name is missing.

    Raises:
        UserError: it is not installed.
    """
    if importlib.util.find_spec(name) is None:
        lock = f"{name.replace('_', '-')}.lock"
        raise UserError(f"environment {name}: the package is not installed: pip install --no-deps -r {lock}")


def extra(name: str) -> Any:
    """Import and return the package; raises as `require_extra` does."""
    require_extra(name)
    return importlib.import_module(name)

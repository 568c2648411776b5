"""Packages that some environments need and the locks leave out: each has a lock of its own, on top of the other."""

from __future__ import annotations

import importlib
import importlib.util
from typing import Any

from models.errors import UserError


def require_extra(name: str) -> None:
    """Refuse to go on without the package of an environment that is called as it is.

    Raises:
        UserError: it is not installed.
    """
    if importlib.util.find_spec(name) is None:
        lock = f"{name.replace('_', '-')}.lock"
        raise UserError(f"environment {name}: the package is not installed: pip install --no-deps -r {lock}")


def extra(name: str) -> Any:
    """The package; raises as `require_extra` does."""
    require_extra(name)
    return importlib.import_module(name)

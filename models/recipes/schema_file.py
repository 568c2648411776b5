"""The schema of recipes in the state folder, so that a recipe can be checked without importing the parts.

The schema is built from the source of `models/` and of the packages that declare parts. Its file has the hash of these
sources, and is only used if this hash is unchanged.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

from models.base.atomic_write import write_file
from models.base.errors import UserError
from models.method.plugins import declared

FILE = "recipe_schema.json"
"""Name in the state folder; the file may be deleted at any time."""
MODELS = Path(__file__).resolve().parents[1]


def stored_schema(home: Path) -> dict[str, Any] | None:
    """Return the schema of recipes that is stored in the state folder; None if there is none, or sources changed."""
    try:
        stored = json.loads((home / FILE).read_bytes())
        schema: dict[str, Any] = stored["schema"]
        return schema if stored["sources"] == _sources() else None
    except (OSError, ValueError, KeyError, TypeError):  # missing, or not as written
        return None


def current_schema(home: Path) -> dict[str, Any]:
    """Return the schema of recipes: the stored one, or a new one, which is then stored if the folder can be written."""
    if (stored := stored_schema(home)) is not None:
        return stored
    from models.method.plugins import faults
    from models.method.registry import NESTED_SLOTS, SLOTS
    from models.recipes.json_schema import recipe_schema

    sources = _sources()
    schema = recipe_schema()
    if not faults(tuple(SLOTS | NESTED_SLOTS)):  # a package may work later without a change of its source
        with suppress(OSError, UserError):
            write_file(home / FILE, json.dumps({"sources": sources, "schema": schema}))
    return schema


def _sources() -> str:
    """Return the SHA-256 of everything that the schema is made from."""
    total = hashlib.sha256(f"{sys.version}\0{importlib.metadata.version('pydantic')}\0".encode())
    for file in sorted(MODELS.rglob("*.py")):
        total.update(f"{file.relative_to(MODELS)}\0".encode() + hashlib.sha256(file.read_bytes()).digest())
    for plugin in declared():
        total.update("\0".join((plugin.key, plugin.target, *plugin.identity)).encode())
    return total.hexdigest()

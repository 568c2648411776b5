"""Reader of recipes: YAML, the recipes it extends and overrides from the command line, then one check of the result.

An error is one line with the file, the path inside the YAML and, for an unknown key, the nearest known one.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from models.base.errors import UserError
from models.recipes.explain import explain
from models.recipes.find import find_recipe
from models.recipes.layers import read_layers
from models.recipes.schema import Recipe, recipe_type


def load_recipe(path: str | Path, overrides: Sequence[str] = ()) -> Recipe:
    """Return the recipe in `path` with `overrides` such as `schedule.rounds=20` on top.

    Args:
        path: a YAML file, or the name of one in recipes/.
        overrides: `key.path=value` each, the value in YAML.

    Raises:
        UserError: no such file, not valid YAML, an unknown key, a wrong value or an impossible combination.
    """
    file = find_recipe(path)
    raw = read_layers(file, overrides)
    raw.setdefault("name", file.stem)
    try:
        return recipe_type().model_validate(raw)
    except ValidationError as error:
        raise UserError(f"{file}: {explain(error, recipe_type())}") from None
    except UserError as error:  # a section's own check
        raise UserError(f"{file}: {error}") from None


def plain(recipe: Recipe) -> dict[str, Any]:
    """Convert the recipe to values for JSON, with every default written out."""
    data: dict[str, Any] = TypeAdapter(recipe_type()).dump_python(recipe, mode="json", by_alias=True)  # type: ignore[arg-type]
    return data


def digest(*sections: Any) -> str:
    """Compute the SHA-256 of sections of a recipe in canonical JSON."""
    return hashlib.sha256(json.dumps(sections, sort_keys=True, default=str).encode()).hexdigest()

"""Logging of a recipe to a run, and reading it back: its contents, and the file and overrides that it came from."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from models.base.errors import UserError
from models.policies.folder import MODELS, is_registered
from models.recipes.find import find_recipe
from models.recipes.load import load_recipe
from models.recipes.schema import Recipe
from tasks.tracking import records, tags
from tasks.tracking.recorded import VersionRecord, read_text

WHOLE, ASKED = "recipe/whole.json", "recipe/asked.json"
"""Artifacts of a run: the recipe with every default written out; its file and the overrides that made it."""


def log_asked(run_id: str, described: Mapping[str, Any], root: Path, file: Path, overrides: Sequence[str]) -> None:
    """Log a recipe to a run: with every default, and as the file and overrides that it was read from.

    Args:
        run_id: the flow's run.
        described: the recipe with every default.
        root: the repository; a file in it is named by its path in any clone.
        file: the file that it was read from.
        overrides: `key.path=value` each.
    """
    inside, clone = file.resolve(), root.resolve()
    name = inside.relative_to(clone).as_posix() if inside.is_relative_to(clone) else str(file)
    for path, facts in ((WHOLE, described), (ASKED, {"recipe": name, "overrides": list(overrides)})):
        records.log_text(run_id, path, json.dumps(facts, indent=1, ensure_ascii=False) + "\n")


def asked_of(said: VersionRecord) -> tuple[str, list[str]]:
    """Return the recipe's file and the overrides (`key.path=value`) with which a version or run was started.

    Raises:
        UserError: they are not recorded.
    """
    try:
        asked = json.loads(read_text(said.run, ASKED))
        return str(asked["recipe"]), [str(text) for text in asked["overrides"]]
    except (ValueError, KeyError, TypeError):
        raise UserError(f"{said.label}: how its recipe was asked for is not on record ({ASKED} of its run)") from None


def read_asked(said: VersionRecord) -> tuple[Recipe, Path]:
    """Read the recipe of a version or run again, from its file and the recorded overrides; return it and the file.

    A base that was the champion is replaced by the version that was champion then.

    Raises:
        UserError: file and overrides are not recorded, or the recipe cannot be read.
    """
    file, overrides = asked_of(said)
    recipe = load_recipe(file, overrides)
    base = said.facts.get(tags.BASE_VERSION, "")
    if base and is_registered(recipe.policy.base or ""):
        recipe = load_recipe(file, [*overrides, f"policy.base={MODELS}{base}"])
    return recipe, find_recipe(file)

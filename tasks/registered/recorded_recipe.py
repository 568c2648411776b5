"""Logging of a recipe to a run, and reading it back: its contents, and the file and overrides that it came from."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from models.base.errors import UserError
from models.policies.build import StageSettings
from models.policies.folder import MODELS, is_registered
from models.recipes.find import find_recipe
from models.recipes.load import load_recipe
from models.recipes.schema import Recipe
from tasks.tracking import records, tags
from tasks.tracking.recorded import VersionRecord, read_text

WHOLE, ARGUMENTS = "recipe/whole.json", "recipe/asked.json"
"""Artifacts of a run: the recipe with every default written out; its file and the overrides that made it."""


def log_recipe_settings(
    run_id: str, settings: Mapping[str, Any], root: Path, file: Path, overrides: Sequence[str]
) -> None:
    """Log a recipe to a run: with every default, and as the file and overrides that it was read from.

    Args:
        run_id: the flow's run.
        settings: the recipe with every default.
        root: the repository; a file in it is named by its path in any clone.
        file: the file that it was read from.
        overrides: `key.path=value` each.
    """
    resolved_file, resolved_root = file.resolve(), root.resolve()
    name = (
        resolved_file.relative_to(resolved_root).as_posix()
        if resolved_file.is_relative_to(resolved_root)
        else str(file)
    )
    for path, facts in ((WHOLE, settings), (ARGUMENTS, {"recipe": name, "overrides": list(overrides)})):
        records.log_text(run_id, path, json.dumps(facts, indent=1, ensure_ascii=False) + "\n")


def recorded_arguments(record: VersionRecord) -> tuple[str, list[str]]:
    """Return the recipe's file and the overrides (`key.path=value`) with which a version or run was started.

    Raises:
        UserError: they are not recorded.
    """
    try:
        arguments = json.loads(read_text(record.run, ARGUMENTS))
        return str(arguments["recipe"]), [str(text) for text in arguments["overrides"]]
    except (ValueError, KeyError, TypeError):
        raise UserError(
            f"{record.label}: the arguments of its recipe are not on record ({ARGUMENTS} of its run)"
        ) from None


def read_recorded_recipe(record: VersionRecord) -> tuple[Recipe, Path]:
    """Read the recipe of a version or run again, from its file and the recorded overrides; return it and the file.

    A base that was the champion is replaced by the version that was champion then, and a stage by the version that it
    made.

    Raises:
        UserError: file and overrides are not recorded, or the recipe cannot be read.
    """
    file, overrides = recorded_arguments(record)
    recipe = load_recipe(file, overrides)
    base = record.facts.get(tags.BASE_VERSION, "")
    if base and (is_registered(recipe.policy.base) or isinstance(recipe.policy.base, StageSettings)):
        recipe = load_recipe(file, [*overrides, f"policy.base={MODELS}{base}"])
    return recipe, find_recipe(file)

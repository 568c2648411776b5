"""A recipe as it stands on a run, written and read again: what it said, and how it was asked for."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from models.errors import UserError
from models.policy.folder import MODELS, is_registered
from models.recipe.find import find_recipe
from models.recipe.load import load_recipe
from models.recipe.schema import Recipe
from tasks.tracking import records, tags
from tasks.tracking.recorded import Recorded, read_text

WHOLE, ASKED = "recipe/whole.json", "recipe/asked.json"
"""Artifacts of a run: the recipe with every default written out; its file and the overrides that made it."""


def log_asked(run_id: str, described: Mapping[str, Any], root: Path, file: Path, overrides: Sequence[str]) -> None:
    """Leave a recipe on a run.

    Args:
        run_id: the flow's run.
        described: the recipe with every default.
        root: the repository; a file in it is named as any clone names it.
        file: where it was read.
        overrides: `key.path=value` each.
    """
    inside, clone = file.resolve(), root.resolve()
    name = inside.relative_to(clone).as_posix() if inside.is_relative_to(clone) else str(file)
    for path, facts in ((WHOLE, described), (ASKED, {"recipe": name, "overrides": list(overrides)})):
        records.log_text(run_id, path, json.dumps(facts, indent=1, ensure_ascii=False) + "\n")


def asked_of(said: Recorded) -> tuple[str, list[str]]:
    """How the recipe of a version or run was asked for: its file, and overrides, `key.path=value` each.

    Raises:
        UserError: that is not on record.
    """
    try:
        asked = json.loads(read_text(said.run, ASKED))
        return str(asked["recipe"]), [str(text) for text in asked["overrides"]]
    except (ValueError, KeyError, TypeError):
        raise UserError(f"{said.label}: how its recipe was asked for is not on record ({ASKED} of its run)") from None


def read_asked(said: Recorded) -> tuple[Recipe, Path]:
    """The recipe of a version or run, from its file in the working directory and the overrides on record; the file.

    A base that was the champion is the version that this was then.

    Raises:
        UserError: how it was asked for is not on record, or it cannot be read.
    """
    file, overrides = asked_of(said)
    recipe = load_recipe(file, overrides)
    base = said.facts.get(tags.BASE_VERSION, "")
    if base and is_registered(recipe.policy.base or ""):
        recipe = load_recipe(file, [*overrides, f"policy.base={MODELS}{base}"])
    return recipe, find_recipe(file)

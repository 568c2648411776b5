"""Parameters of the flows as Prefect's form shows them: recipes by name, all others with their type and description.

The list of names is for the form and for Prefect's server, which rejects other names; a direct call takes any path.
"""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field

from models.recipes.find import recipe_names

_NAMES: list[Any] = list(recipe_names())
RecipeName = Annotated[str, Field(title="Recipe", json_schema_extra={"enum": _NAMES} if _NAMES else {})]
"""Path or name of a recipe."""
Overrides = Annotated[
    list[str] | None,
    Field(title="Overrides", json_schema_extra={"examples": [["schedule.rounds=20", "rollouts.group_size=16"]]}),
]
"""Overrides of the recipe, `key.path=value` each."""

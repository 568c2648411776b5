"""The parameters of flows as Prefect's form offers them: recipes by name, everything else with its type and meaning.

The list of names is for the form, and for Prefect's server, which refuses others; a call takes any path too.
"""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field

from models.recipe.find import recipe_names

_NAMES: list[Any] = list(recipe_names())
RecipeName = Annotated[str, Field(title="Recipe", json_schema_extra={"enum": _NAMES} if _NAMES else {})]
"""Path or name of a recipe."""
Overrides = Annotated[
    list[str] | None,
    Field(title="Overrides", json_schema_extra={"examples": [["schedule.rounds=20", "rollouts.group_size=16"]]}),
]
"""`key.path=value` each."""

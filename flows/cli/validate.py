"""The command `rewardflow validate`: check recipes in milliseconds by their schema, or exactly by loading them.

The parts of a recipe are classes in modules that import torch, so that loading a recipe takes seconds. The schema of
recipes is built from these classes once, and kept in the state folder until the source changes. Recipes are checked
against this schema. It decides exactly about keys, names of parts, types and limits, but it does not know which parts
fit together. The last line of the output states which of the two checks was made. Recipes are loaded in full

- with `--full`;
- if the stored schema is out of date, because building it imports all parts anyway;
- if a value is one that the loader might convert, such as the text "3" for a number; this recipe only.
"""

from __future__ import annotations

from typing import Annotated, Any

import typer

from flows.runtime.command_options import SetOption, complete_recipes
from flows.runtime.environment import state_folder
from models.base.errors import UserError

PANEL = "Methods"

BY_SCHEMA = "keys, names of parts, types and limits; --full also checks that the parts fit together"
IN_FULL = "each recipe was loaded, as a run loads it"


def validate(
    recipes: Annotated[
        list[str],
        typer.Argument(
            metavar="RECIPE...",
            help="Paths of recipes, or names of recipes in recipes/.",
            autocompletion=complete_recipes,
        ),
    ],
    overrides: SetOption = None,
    full: Annotated[
        bool, typer.Option("--full", help="Load the recipes, which takes seconds. Default: check them by their schema.")
    ] = False,
) -> None:
    """Check recipes before a run: one line for each, with all errors. Exit status 1 if one is not valid.

    The check needs milliseconds: it reads the recipes' files against the schema (`rewardflow schema`). Data, models and
    other files that the recipes name are not read; `rewardflow run` checks these before it starts anything.

    Example: `rewardflow validate grpo my_recipe.yaml --set seed=1`
    """
    from models.recipes.schema_file import current_schema, stored_schema

    schema = stored_schema(state_folder())
    loads = full or schema is None
    if schema is None:
        schema = current_schema(state_folder())
    refused = 0
    for recipe in recipes:
        errors, loaded = _errors(recipe, overrides or [], schema, loads)
        refused += bool(errors)
        how = "  (by loading it: only the loader can read one of its values)" if loaded and not loads else ""
        print(f"refused  {'; and '.join(errors)}{how}" if errors else f"valid    {recipe}{how}")
    counted = f"{len(recipes)} recipe{'s' * (len(recipes) > 1)}, {refused} refused"
    print(f"{counted}. Checked {f'by loading: {IN_FULL}' if loads else f'by the schema: {BY_SCHEMA}'}.")
    if refused:
        raise typer.Exit(1)


def _errors(recipe: str, overrides: list[str], schema: dict[str, Any], loads: bool) -> tuple[list[str], bool]:
    """Return the errors of a recipe, one line each, and whether it was loaded.

    Errors by the schema come all together. Of the errors that only loading finds, the first is returned.
    """
    from models.recipes.quick_check import Undecided, quick_findings

    try:
        try:
            if errors := quick_findings(recipe, overrides, schema):
                return errors, False
        except Undecided:
            loads = True
        if loads:
            from models.recipes.load import load_recipe
            from models.recipes.stages import stages_before

            stages_before(load_recipe(recipe, overrides))
    except UserError as error:
        return list(error.args), loads
    return [], loads

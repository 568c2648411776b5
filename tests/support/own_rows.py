"""Recipes whose rows are in a file of recipes/."""

from pathlib import Path

from models.recipes.schema import Recipe


def reads_own_rows(recipe: Recipe) -> bool:
    """Return whether the recipe reads rows that are committed next to it."""
    paths = recipe.data.path or ()
    return bool(paths) and all(Path(path).parts[0] == "recipes" for path in paths)

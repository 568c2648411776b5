"""What code reads of a recipe, declared once: that alone is handed to it, and that alone can change what it makes."""

from __future__ import annotations

from typing import Any, get_type_hints


class Sections:
    """Part of a recipe: a subclass annotates the sections and settings that it takes, and has nothing else.

    `seed: int` takes `recipe.seed`; `longest: int = of("validation.max_tokens")` a setting alone, None where a section
    on the way is null. What several steps call declares its own, and theirs derive from these. What is not declared
    does not type-check, and is not there.
    """

    def __init__(self, recipe: Any) -> None:
        for name in get_type_hints(type(self)):
            value = recipe
            for part in getattr(type(self), name, name).split("."):
                value = None if value is None else getattr(value, part)
            setattr(self, name, value)


def of(path: str) -> Any:
    """Take the setting at `path` of the recipe under a name of its own."""
    return path

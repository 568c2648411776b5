"""Declarations of the recipe sections that a step reads: the step gets only these, and only these change its result."""

from __future__ import annotations

from typing import Any, get_type_hints


class Sections:
    """Part of a recipe: a subclass annotates the sections and settings that it reads, and has no other attributes.

    `seed: int` takes `recipe.seed`; `longest: int = of("validation.max_tokens")` takes one setting, None if a section
    on the way is null. Code that several steps call declares its own sections, and the steps derive theirs from these.
    A section that is not declared does not type-check, and is missing at run time.
    """

    def __init__(self, recipe: Any) -> None:
        for name in get_type_hints(type(self)):
            value = recipe
            for part in getattr(type(self), name, name).split("."):
                value = None if value is None else getattr(value, part)
            setattr(self, name, value)


def of(path: str) -> Any:
    """Declare that an attribute of `Sections` takes the setting at `path` of the recipe."""
    return path

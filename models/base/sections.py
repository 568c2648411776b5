"""Declaration of the recipe sections that a step reads: it gets only these, and its result depends only on them."""

from __future__ import annotations

from typing import Any, get_type_hints


class Sections:
    """Base class of views of a recipe: the attributes that a subclass annotates are taken from it, and no others.

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
    """Declare that an attribute of a `Sections` class takes its value from the setting at `path`."""
    return path

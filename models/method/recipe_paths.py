"""Types of settings that are paths or commands, by which the files that a recipe names are found.

    RecipePath     a file or folder; a relative path in a recipe's file is relative to the folder of that file
    ContentPath    a file or folder, relative to the working directory, as all paths of a command line are
    ContentPaths   several of them
    Command        a command, whose words may name files

The files are identified by their content: another content under the same name is another recipe.
"""

from __future__ import annotations

import typing
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Annotated, Any, get_args, get_origin

from models.method.registry import NESTED_SLOTS, SLOTS, Slot, parts


class RelativeToRecipe:
    """Marker of a setting that is a path relative to the recipe, and is read by the part (`Part.given`)."""


class ByContent:
    """Marker of a setting whose files are read later, by the code that uses the part."""


RecipePath = Annotated[str, RelativeToRecipe()]
ContentPath = Annotated[str, ByContent()]
ContentPaths = Annotated[tuple[str, ...], ByContent()]
Command = Annotated[tuple[str, ...], ByContent()]


def from_recipe(slot: Slot, part: Any, folder: Path) -> Any:
    """Resolve the relative paths in the settings of a part, or a list of parts, of `slot` from `folder`."""
    if isinstance(part, list):
        return [from_recipe(slot, entry, folder) for entry in part]
    if not isinstance(part, Mapping):
        return part
    cls = parts(slot).get(str(part.get("name", (SLOTS | NESTED_SLOTS)[slot].default)))
    marked = paths_of(cls) if cls is not None else ()

    def read(key: str, value: Any) -> Any:
        if key in NESTED_SLOTS:
            return from_recipe(key, value, folder)  # type: ignore[arg-type]
        return str(folder / Path(value).expanduser()) if key in marked and isinstance(value, str) and value else value

    return {key: read(key, value) for key, value in part.items()}


def paths_of(cls: type) -> tuple[str, ...]:
    """Return the names of a part's settings that are paths relative to the recipe (`RecipePath`)."""
    return _marked(cls, RelativeToRecipe)


def used_by_content(cls: type) -> tuple[str, ...]:
    """Return the names of a part's settings that are a `ContentPath`, `ContentPaths` or a `Command`."""
    return _marked(cls, ByContent)


@cache
def _marked(cls: type, mark: type) -> tuple[str, ...]:
    return tuple(
        name
        for name, hint in typing.get_type_hints(cls, include_extras=True).items()
        if get_origin(hint) is Annotated and any(isinstance(annotation, mark) for annotation in get_args(hint))
    )

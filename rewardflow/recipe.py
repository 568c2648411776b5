"""Recipes built in Python, and overrides of recipes as keyword arguments."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from models.base.atomic_write import write_file
from models.base.errors import UserError


@dataclass(frozen=True)
class Recipe:
    """A recipe that changes another one: the keys of the YAML file, as Python values.

    A reward may be a function of a file: `rewards=["exact_answer", brevity]`. Relative paths start at the working
    directory.

    Example:
        >>> from rewardflow import Recipe
        >>> recipe = Recipe("short", extends="arithmetic", schedule={"rounds": 20}, objective="gspo")
        >>> recipe.overrides
        ['name=short', 'source={}', 'schedule.rounds=20', 'objective="gspo"']
    """

    name: str
    """Name of the experiment; the registered model is NAME-policy."""
    extends: str
    """Name or file of the recipe that is changed."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Section -> value: a nested mapping, a part by name, a list of parts."""

    def __init__(self, name: str, *, extends: str, **settings: Any) -> None:
        """Keep the name, the recipe that is extended, and the sections given as keyword arguments."""
        object.__setattr__(self, "name", name)
        object.__setattr__(self, "extends", extends)
        object.__setattr__(self, "settings", settings)

    @property
    def overrides(self) -> list[str]:
        """The recipe as overrides of the one that it extends, `key.path=value` each; a paper is not inherited."""
        return [f"name={self.name}", *overrides_of({"source": {}} | dict(self.settings))]

    def check(self) -> None:
        """Load the recipe, which imports its parts.

        Raises:
            UserError: a key is unknown, a value is wrong, or parts do not fit together.
        """
        from models.recipes.load import load_recipe

        load_recipe(self.extends, self.overrides)

    def save(self, folder: str | Path = "recipes") -> Path:
        """Write the recipe to FOLDER/NAME.yaml, so that it can be committed and scheduled. Returns the file.

        Raises:
            UserError: the file exists, or the recipe is wrong.
        """
        self.check()
        file = Path(folder) / f"{self.name}.yaml"
        if file.exists():
            raise UserError(f"{file}: exists already; give the recipe another name or remove the file")
        content = {"extends": self.extends, **{key: _plain(value) for key, value in self.settings.items()}}
        file.parent.mkdir(parents=True, exist_ok=True)
        write_file(file, yaml.safe_dump(content, sort_keys=False, allow_unicode=True))
        return file


def overrides_of(settings: Mapping[str, Any], section: str = "") -> list[str]:
    """Convert settings to overrides, `key.path=value` each. Nested mappings become paths, except those of parts.

    Args:
        settings: key -> value; `schedule__rounds` means schedule.rounds, as `schedule={"rounds": ...}` does.
        section: path of the section that has the keys.

    Raises:
        UserError: a value has no form in YAML.
    """
    overrides = []
    for key, value in settings.items():
        path = ".".join(filter(None, (section, key.replace("__", "."))))
        if isinstance(value, Mapping) and "name" not in value and value:
            overrides += overrides_of(value, path)
            continue
        try:
            overrides.append(f"{path}={json.dumps(_plain(value), allow_nan=False)}")
        except (TypeError, ValueError) as error:
            raise UserError(f"{path}: {error}; use text, numbers, lists, mappings and functions of a file") from None
    return overrides


def _plain(value: Any) -> Any:
    """Convert functions to the reward `python` and paths to text, also inside lists and mappings."""
    if isinstance(value, Mapping):
        return {str(key): _plain(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(entry) for entry in value]
    if isinstance(value, Path):
        return str(value)
    return _reward_of(value) if inspect.isfunction(value) else value


def _reward_of(function: Callable[..., Any]) -> dict[str, str]:
    """Return the reward `python` that calls a function.

    Raises:
        UserError: the function is not at the top of a file: it was defined in a notebook, in a function or as a lambda.
    """
    name = function.__qualname__
    try:
        file = Path(inspect.getsourcefile(function) or "")
    except TypeError:
        file = Path()
    if not name.isidentifier() or not file.is_file():
        raise UserError(
            f"reward {name}: not a function at the top of a file; write it to a file and import it, so that a run can "
            "record it"
        )
    return {"name": "python", "path": str(file.absolute()), "function": name, "label": name}

"""The section `models` of a recipe: frozen models by name, and the parts that refer to them.

    models: {solver: {recipe: gsm8k_small}, user: {path: models/user}}
    rollouts: {name: episodes, environment: {name: partner, model: solver}}

A part refers to an entry by its setting `model`, whose value may also be a folder. `teacher: {name: solver}` and
`judge: {name: solver}` refer to an entry too. A run makes the models of recipes first (flows.runtime.frozen_policies),
and then replaces each reference by a folder.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from models.base.errors import UserError
from models.method.recipe_paths import used_by_content
from models.method.registry import SLOTS, Part
from models.policies.folder import check_model_folder

if TYPE_CHECKING:
    from models.recipes.schema import Recipe

SETTING = "model"
"""Setting of a part that names a model folder or an entry of `models`."""
ROLES = ("teacher", "judge")
"""Sections that may refer to an entry by `name`."""


def with_entries(raw: Any) -> Any:
    """Return a recipe as it was read, with the settings of an entry in each section that refers to it by `name`.

    Raises:
        ValueError: the name is not in `models`.
    """
    if not isinstance(raw, Mapping):
        return raw
    models = raw.get("models")
    entries = models if isinstance(models, Mapping) else {}
    expanded = dict(raw)
    for role in ROLES:
        section = raw.get(role)
        name = section.get("name") if isinstance(section, Mapping) else None
        if not isinstance(section, Mapping) or name is None:
            continue
        entry = entries.get(name) if isinstance(name, str) else None
        if not isinstance(entry, Mapping):
            known = ", ".join(entries) or "none"
            raise ValueError(f"{role}.name: {name!r} is not an entry of models; there are {known}")
        expanded[role] = {**entry, **section}
    return expanded


def check_models(recipe: Recipe) -> None:
    """Check that every entry of `models` is used, and that the parts that refer to it can use it.

    Raises:
        ValueError: an entry is not used, or a part refers to a model on a server.
    """
    used = set(_role_names(recipe))
    for key, value in references(recipe):
        entry = recipe.models.get(value)
        if entry is None:
            continue
        if entry.address is not None:
            raise ValueError(
                f"models.{value}.address: {key} needs a model on this machine, and one on a server is not supported "
                f"there yet; set models.{value}.path or recipe"
            )
        used.add(value)
    for name in recipe.models:
        if name not in used:
            raise ValueError(f"models.{name}: nothing in the recipe refers to it, such as an environment; leave it out")


def check_references(recipe: Recipe) -> None:
    """Check that every reference of a part is an entry of `models` or a model folder.

    Raises:
        UserError: it is neither.
    """
    for key, value in references(recipe):
        if value in recipe.models:
            continue
        folder = Path(value).expanduser()
        if not folder.exists() and folder.name == value:
            known = ", ".join(recipe.models) or "none"
            raise UserError(f"{key}: {value!r} is neither a model folder nor an entry of models; there are {known}")
        try:
            check_model_folder(folder)
        except UserError as error:
            raise UserError(f"{key}: {error}") from None


def references(recipe: Recipe) -> list[tuple[str, str]]:
    """Return the key of each setting of a part that names a model, with its value; settings that name none are left
    out."""
    named: list[tuple[str, str]] = []

    def note(key: str, value: str) -> str:
        named.append((key, value))
        return value

    for slot, part in _slots(recipe):
        _changed(part, slot, note)
    return [(key, value) for key, value in named if value]


def with_folders(recipe: Recipe, folders: Mapping[str, Path]) -> Recipe:
    """Return a recipe whose parts name a folder for each entry of `models` that they refer to.

    Args:
        folders: name of an entry -> its model folder.
    """

    def folder_of(key: str, value: str) -> str:
        return str(folders[value]) if value in folders else value

    return recipe.model_copy(update={slot: _changed(part, slot, folder_of) for slot, part in _slots(recipe)})


def entries_of_parts(recipe: Recipe) -> list[str]:
    """Return the names of the entries of `models` that parts refer to, each once."""
    return list(dict.fromkeys(value for _, value in references(recipe) if value in recipe.models))


def _role_names(recipe: Recipe) -> Iterator[str]:
    for role in ROLES:
        section = getattr(recipe, role)
        if section is not None and section.name is not None:
            yield section.name


def _slots(recipe: Recipe) -> Iterator[tuple[str, Any]]:
    for slot in SLOTS:
        yield slot, getattr(recipe, slot)


def _changed(value: Any, key: str, change: Callable[[str, str], str]) -> Any:
    """Return a part, or a list of parts, in which `change` was applied to each setting that names a model.

    Args:
        value: any setting; one without parts is returned as it is.
        key: its key in the recipe.
        change: receives key and value of a setting that names a model, and returns the new value.
    """
    if isinstance(value, list | tuple):
        changed = [_changed(entry, f"{key}.{number}", change) for number, entry in enumerate(value)]
        return value if all(new is old for new, old in zip(changed, value, strict=True)) else type(value)(changed)
    if not isinstance(value, Part) or not is_dataclass(value):
        return value
    names_model = SETTING in used_by_content(type(value))
    new: dict[str, Any] = {}
    for item in fields(value):
        old, place = getattr(value, item.name), f"{key}.{item.name}"
        made = change(place, old) if names_model and item.name == SETTING else _changed(old, place, change)
        if made is not old:
            new[item.name] = made
    return replace(value, **new) if new else value

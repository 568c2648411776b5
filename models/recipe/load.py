"""Read a recipe: YAML, what it extends, overrides from the command line; then one check of the whole.

An error is one line with the file, the path inside the YAML and, for an unknown key, the nearest known one.
"""

from __future__ import annotations

import dataclasses
import difflib
import hashlib
import json
import types
import typing
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Union, get_args, get_origin

import yaml
from pydantic import BaseModel, TypeAdapter, ValidationError

from models.datasets.raw import files_of
from models.errors import UserError
from models.policy.folder import check_model_folder, given_folder
from models.recipe.find import find_recipe
from models.recipe.schema import Recipe, recipe_type

SLOT_KEYS = ("rollouts", "rewards", "select", "advantage", "objective", "reference")
"""The keys of a recipe under which parts stand."""


def load_recipe(path: str | Path, overrides: Sequence[str] = ()) -> Recipe:
    """The recipe in `path` with `overrides` such as `schedule.rounds=20` on top.

    Args:
        path: a YAML file, or the name of one in recipes/.
        overrides: `key.path=value` each, the value in YAML.

    Raises:
        UserError: no such file, not valid YAML, an unknown key, a wrong value or an impossible combination.
    """
    file = find_recipe(path)
    raw = _read(file)
    for override in sorted(overrides, key=lambda text: not text.partition("=")[0].endswith(".name")):
        _set(raw, override)  # the names of parts first: naming another part drops the settings of the one before
    raw.setdefault("name", file.stem)
    try:
        return recipe_type().model_validate(raw)
    except ValidationError as error:
        raise UserError(f"{file}: {explain(error, recipe_type())}") from None
    except UserError as error:  # a section's own check
        raise UserError(f"{file}: {error}") from None


def require_files(recipe: Recipe) -> None:
    """Make sure that the files which a recipe names are there, so that a run does not find out after its first steps.

    Raises:
        UserError: a data file is missing or of an unknown kind, policy.base is a folder that holds no model, or the
            masks of a subnetwork are not there.
    """
    files_of(recipe.data.path or ())
    files_of(recipe.data.test_path or (), "data.test_path")
    folder = given_folder(recipe.policy.base) if recipe.policy.base else None
    if folder is not None:
        try:
            check_model_folder(folder)
        except UserError as error:
            raise UserError(f"policy.base: {error}") from None
    masks = recipe.policy.subnetwork.masks if recipe.policy.subnetwork else None
    if masks is not None and not Path(masks).is_file():
        raise UserError(f"policy.subnetwork.masks: {masks}: no such file")


def plain(recipe: Recipe) -> dict[str, Any]:
    """The recipe as it would stand in JSON, every default written out."""
    data: dict[str, Any] = TypeAdapter(recipe_type()).dump_python(recipe, mode="json", by_alias=True)  # type: ignore[arg-type]
    return data


def digest(*sections: Any) -> str:
    """SHA-256 of parts of a recipe in canonical JSON."""
    return hashlib.sha256(json.dumps(sections, sort_keys=True, default=str).encode()).hexdigest()


def _read(file: Path, seen: tuple[Path, ...] = ()) -> dict[str, Any]:
    if file.resolve() in seen:
        raise UserError(f"{file}: extends itself")
    try:
        raw = yaml.safe_load(file.read_text(encoding="utf-8")) or {}
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise UserError(f"{file}: not valid YAML ({' '.join(str(error).split())})") from None
    if not isinstance(raw, dict):
        raise UserError(f"{file}: a recipe is a mapping of keys to values, this is a {type(raw).__name__}")
    base = raw.pop("extends", None)
    if base is None:
        return raw
    beside = file.parent / f"{base}.yaml"
    below = _read(beside if beside.is_file() else find_recipe(str(base)), (*seen, file.resolve()))
    below.pop("name", None)
    return _merge(below, raw)


def _merge(below: dict[str, Any], above: dict[str, Any]) -> dict[str, Any]:
    """`above` on top of `below`; a part of another name replaces the part whole."""
    merged = dict(below)
    for key, value in above.items():
        old = merged.get(key)
        if isinstance(old, dict) and isinstance(value, dict) and value.get("name", old.get("name")) == old.get("name"):
            merged[key] = _merge(old, value)
        else:
            merged[key] = value
    return merged


def _set(raw: dict[str, Any], override: str) -> None:
    path, separator, text = override.partition("=")
    if not separator or not path:
        raise UserError(f"override {override!r}: write it as key.path=value")
    try:
        value = yaml.safe_load(text)
    except yaml.YAMLError:
        raise UserError(f"override {override!r}: {text!r} is not valid YAML") from None
    *above, last = path.split(".")
    place: Any = raw
    for key in above:
        if isinstance(place, list):
            place = place[_index(override, key, place)]
            continue
        _require_mapping(override, key, place)
        if not isinstance(place.get(key), (dict, list)):
            place[key] = {}
        place = place[key]
    if isinstance(place, list):
        place[_index(override, last, place)] = value
        return
    _require_mapping(override, last, place)
    if last == "name" and above and above[0] in SLOT_KEYS and place.get("name") != value:
        place.clear()  # another part, as under `extends`: the settings of the one before are not its own
    place[last] = value


def _require_mapping(override: str, key: str, place: Any) -> None:
    if not isinstance(place, dict):
        raise UserError(f"override {override!r}: {key!r} is no key: there is no mapping but {place!r}")


def _index(override: str, key: str, items: list[Any]) -> int:
    if not key.isdigit() or int(key) >= len(items):
        raise UserError(f"override {override!r}: {key!r} is not one of the {len(items)} entries of the list")
    return int(key)


def explain(error: ValidationError, schema: Any) -> str:
    """The first problem of a validation in one line, with the path inside the YAML."""
    first = error.errors()[0]
    names = [str(part) for part in first["loc"]]
    where, known = _walk(schema, first["loc"])
    path = ".".join(where)
    if first["type"] in ("extra_forbidden", "unexpected_keyword_argument"):
        near = difflib.get_close_matches(names[-1], known, n=1, cutoff=0.5)
        hint = f"did you mean {near[0]}?" if near else f"known here: {', '.join(sorted(known)) or 'none'}"
        return f"{path}: unknown key; {hint}"
    if first["type"] in ("union_tag_invalid", "union_tag_not_found", "literal_error"):
        expected = str(first.get("ctx", {}).get("expected_tags") or first.get("ctx", {}).get("expected", ""))
        given = str(first.get("ctx", {}).get("tag", first.get("input")))
        options = [option.strip().strip("'") for option in expected.replace(" or ", ", ").split(",") if option.strip()]
        near = difflib.get_close_matches(given, options, n=1)
        hint = f"did you mean {near[0]}? " if near else ""
        at = path if first["type"] == "literal_error" else f"{path}.name"
        return f"{at}: {given!r} is not known; {hint}there is {', '.join(options)}"
    message = first["msg"].removeprefix("Value error, ").removeprefix("Assertion failed, ")
    return f"{path}: {message}" if path else message


def _walk(schema: Any, location: tuple[int | str, ...]) -> tuple[list[str], list[str]]:
    """The path as the user wrote it, without the tags that a union adds, and the keys known where it ends."""
    where: list[str] = []
    known: list[str] = []
    current = [schema]
    for step in location:
        fields: dict[str, Any] = {}
        tags: dict[str, Any] = {}
        for option in _options(current):
            if isinstance(option, type) and issubclass(option, BaseModel):
                fields |= {name: info.annotation for name, info in option.model_fields.items()}
            elif dataclasses.is_dataclass(option):
                key = getattr(option, "__pydantic_config__", {}).get("alias_generator", str)
                hints = typing.get_type_hints(option)
                fields |= {key(item.name): hints[item.name] for item in dataclasses.fields(option)}
                tags[str(getattr(option, "name", ""))] = option
                tags[option.__name__] = option  # type: ignore[union-attr]
        if isinstance(step, str) and step not in fields and step in tags:
            current = [tags[step]]
            continue
        where.append(str(step))
        known = [name for name in fields if name != "name"]
        items = [get_args(option)[0] for option in _options(current) if get_origin(option) is list]
        current = items if isinstance(step, int) else [fields.get(step)]
    return where, known


def _options(types_here: list[Any]) -> list[Any]:
    """The alternatives of a type: members of unions, through Annotated."""
    found: list[Any] = []
    for option in types_here:
        origin = get_origin(option)
        if origin is typing.Annotated:
            found += _options([get_args(option)[0]])
        elif origin in (Union, types.UnionType):
            found += _options(list(get_args(option)))
        else:
            found.append(option)
    return found

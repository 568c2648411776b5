"""The layers that a recipe is read from: its file, the files it extends, and overrides from the command line.

The result is the YAML with the upper layers on top, each part spelled out as `{name: ...}`. Keys and values are checked
afterwards, on the merged recipe.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from functools import lru_cache
from pathlib import Path
from typing import Any

from models.base.bounds import require_finite
from models.base.errors import UserError, shortened
from models.datasets.strict_yaml import YamlError, parse_yaml
from models.datasets.text_files import not_utf8
from models.method.recipe_paths import from_recipe
from models.method.registry import SLOTS, parts
from models.recipes.find import FOLDER, find_recipe

OWN = ("name", "source")
"""Keys that are not inherited by a recipe that extends this one: its name, and the paper that its method comes from."""
MOST_LAYERS = 20
"""Maximum number of recipes in a chain of `extends`; a longer chain is treated as a mistake."""


def read_layers(file: Path, overrides: Sequence[str], *, with_parts: bool = True) -> dict[str, Any]:
    """Merge a recipe's YAML with the recipes that it extends below it, and with `overrides` on top.

    Args:
        file: the recipe.
        overrides: `key.path=value` each, the value in YAML.
        with_parts: False: no part is imported. Relative paths in settings of parts are then not resolved, and an
            inherited normalisation is kept.

    Raises:
        UserError: a file is missing or not valid YAML, a number in it is not finite or too large, or an override
            reaches nothing.
    """
    raw = _read(file, with_parts)
    before = _objective(raw)
    for override in sorted(overrides, key=lambda text: not text.partition("=")[0].endswith(".name")):
        put_override(raw, override)  # names of parts first: naming another part drops the settings of the one before
    stated = any(override.partition("=")[0] in ("schedule", "schedule.normalisation") for override in overrides)
    return raw if stated or not with_parts else _without_the_normalisation_of(before, raw)


def _read(file: Path, with_parts: bool, above: tuple[Path, ...] = ()) -> dict[str, Any]:
    """Return the YAML of `file` on top of what it extends; `above` are the files that extend it, the lowest last."""
    if file.resolve() in above:
        raise UserError(f"{file}: extends itself")
    if len(above) >= MOST_LAYERS:
        raise UserError(f"{above[0]}: extends more than {MOST_LAYERS} recipes, one after the other")
    raw = _parsed(file, with_parts)
    base = raw.pop("extends", None)
    if base is None:
        return raw
    below = _read(_extended(file, base), with_parts, (*above, file.resolve()))
    for key in OWN:
        below.pop(key, None)
    merged, schedule = _merge(below, raw), raw.get("schedule")
    stated = isinstance(schedule, dict) and "normalisation" in schedule
    return merged if stated or not with_parts else _without_the_normalisation_of(_objective(below), merged)


def _objective(raw: dict[str, Any]) -> Any:
    """Return the name of the objective, also if `raw` leaves it out."""
    objective = raw.get("objective")
    return objective.get("name", SLOTS["objective"].default) if isinstance(objective, dict) else objective


def _without_the_normalisation_of(before: Any, raw: dict[str, Any]) -> dict[str, Any]:
    """Drop the normalisation that `raw` inherits from a recipe whose objective was `before`, if the objective that
    replaces it has none. The inherited value was meant for the other objective."""
    name, schedule = _objective(raw), raw.get("schedule")
    objective: Any = parts("objective").get(name) if isinstance(name, str) and name != before else None
    if objective is None or not isinstance(schedule, dict) or objective.level == "token":
        return raw
    return {**raw, "schedule": {key: value for key, value in schedule.items() if key != "normalisation"}}


def _parsed(file: Path, with_parts: bool) -> dict[str, Any]:
    try:
        raw = deepcopy(_value_of(file.read_text(encoding="utf-8")))
    except UnicodeDecodeError:
        raise UserError(not_utf8(file)) from None
    except OSError as error:
        raise UserError(f"{file}: cannot be read ({error.strerror})") from None
    except YamlError as error:
        raise UserError(f"{file}: not valid YAML ({error})") from None
    if raw is None:
        return {}
    if not isinstance(raw, dict):
        raise UserError(f"{file}: a recipe is a mapping of keys to values, this is a {type(raw).__name__}")
    _require_numbers(raw, str(file))
    if not with_parts:
        return _spelled_out(raw)
    return _spelled_out(raw) | {slot: from_recipe(slot, raw[slot], file.parent) for slot in SLOTS if slot in raw}


_value_of = lru_cache(maxsize=1024)(parse_yaml)  # recipes are read repeatedly, by the recipes that extend them


def _extended(file: Path, base: Any) -> Path:
    """Return the file that `extends` means: a recipe in the folder of `file`, or one in recipes/."""
    if not isinstance(base, str):
        raise UserError(f"{file}: extends: the name of one recipe, not a {type(base).__name__}")
    if Path(base).is_absolute() or ".." in Path(base).parts:
        raise UserError(
            f"{file}: extends: {shortened(base)} leads out of the folder; a recipe extends one next to it or in "
            f"{FOLDER}/, by its name"
        )
    try:
        for neighbour in (file.parent / f"{base}.yaml", file.parent / base):
            if neighbour.is_file() and neighbour.resolve() != file.resolve():
                return neighbour
        return find_recipe(base)
    except (UserError, OSError) as error:
        raise UserError(f"{file}: extends: {error}") from None


def _require_numbers(value: Any, where: str, path: str = "") -> None:
    try:
        require_finite(value, path)
    except ValueError as error:
        raise UserError(f"{where}: {error}") from None


def _spelled_out(raw: dict[str, Any]) -> dict[str, Any]:
    """Return `raw` with every part that is only named written as `{name: ...}`."""
    for key in SLOTS:
        if key in raw:
            raw[key] = _part(raw[key])
    return raw


def _part(value: Any) -> Any:
    if isinstance(value, str):
        return {"name": value}
    return [_part(entry) for entry in value] if isinstance(value, list) else value


def _merge(below: dict[str, Any], above: dict[str, Any]) -> dict[str, Any]:
    """Merge `above` on top of `below`; a part of another name replaces the whole part, and {} replaces a mapping."""
    merged = dict(below)
    for key, value in above.items():
        old = merged.get(key)
        merged[key] = value
        if not (isinstance(old, dict) and isinstance(value, dict) and value):
            continue
        if value.get("name", old.get("name")) == old.get("name"):
            merged[key] = _merge(old, value)
    return merged


def put_override(raw: dict[str, Any], override: str) -> None:
    """Apply one override, `key.path=value` with the value in YAML, to `raw`, in place.

    Raises:
        UserError: the text is not an override, or reaches nothing.
    """
    path, separator, text = override.partition("=")
    shown = repr(shortened(override))
    if not separator or not path:
        raise UserError(f"override {shown}: write it as key.path=value")
    try:
        value = parse_yaml(text)
    except YamlError as error:
        raise UserError(f"override {shown}: {shortened(text)!r} is not valid YAML ({error})") from None
    _require_numbers(value, f"override {shown}", path)
    *above, last = path.split(".")
    if len(above) > MOST_LAYERS:
        raise UserError(f"override {shown}: no key lies {len(above)} levels deep")
    place: Any = raw
    for key in above:
        if isinstance(place, list):
            place = place[_index(shown, key, place)]
            continue
        _require_mapping(shown, key, place)
        if not isinstance(place.get(key), (dict, list)):
            place[key] = {}
        place = place[key]
    if isinstance(place, list):
        place[_index(shown, last, place)] = _part(value) if above[0] in SLOTS and len(above) == 1 else value
        return
    _require_mapping(shown, last, place)
    if last == "name" and above and above[0] in SLOTS and place.get("name") != value:
        place.clear()  # another part, as under `extends`: the settings of the one before are not its own
    place[last] = _part(value) if not above and last in SLOTS else value


def _require_mapping(shown: str, key: str, place: Any) -> None:
    if not isinstance(place, dict):
        raise UserError(f"override {shown}: {shortened(key)!r} is not a key: {shortened(place)!r} is not a mapping")


def _index(shown: str, key: str, items: list[Any]) -> int:
    if not (key.isascii() and key.isdecimal() and len(key) < 6 and int(key) < len(items)):
        raise UserError(f"override {shown}: {shortened(key)!r} is not one of the {len(items)} entries of the list")
    return int(key)

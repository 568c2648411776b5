"""Formatting of a recipe's validation error in one line, with the path inside the YAML and the nearest known key."""

from __future__ import annotations

import dataclasses
import difflib
import types
import typing
from collections.abc import Mapping, Sequence
from typing import Any, Union, get_args, get_origin

from pydantic import BaseModel, ValidationError

from models.base.errors import shortened
from models.method.plugins import faults
from models.method.registry import NESTED_SLOTS, SLOTS


def explain(error: ValidationError, schema: Any) -> str:
    """Return the first problem of a validation in one line, with the path inside the YAML."""
    first = error.errors()[0]
    where, known, renamed = _walk(schema, first["loc"])
    path = shortened(".".join(where), 120)
    if first["type"] in ("extra_forbidden", "unexpected_keyword_argument"):
        return unknown_key(path, str(first["loc"][-1]), known, renamed)
    if first["type"] in ("union_tag_invalid", "union_tag_not_found", "literal_error"):
        expected = str(first.get("ctx", {}).get("expected_tags") or first.get("ctx", {}).get("expected", ""))
        given = first.get("ctx", {}).get("tag", first.get("input"))
        options = [option.strip().strip("'") for option in expected.replace(" or ", ", ").split(",") if option.strip()]
        return unknown_value(path if first["type"] == "literal_error" else f"{path}.name", given, options)
    message = first["msg"].removeprefix("Value error, ").removeprefix("Assertion failed, ")
    return f"{path}: {message}" if path else message


def unknown_key(path: str, key: str, known: Sequence[str], renamed: Mapping[str, str]) -> str:
    """Return the error for a key that is unknown where it is, with its present name or the nearest known key.

    Args:
        path: path of the key in the recipe.
        key: the last part of the path.
        known: the keys that are possible there.
        renamed: former keys, with their present names.
    """
    if new := renamed.get(key):
        return f"{path}: is called {new} now"
    near = difflib.get_close_matches(shortened(key), known, n=1, cutoff=0.5)
    hint = f"did you mean {near[0]}?" if near else f"known here: {', '.join(sorted(known)) or 'none'}"
    return f"{path}: unknown key; {hint}"


def unknown_value(path: str, value: object, known: Sequence[object]) -> str:
    """Return the error for a value, or a name of a part, that is none of those that are `known`.

    If an installed package declares a part of this name that cannot be used, the error is the reason.
    """
    given, options = shortened(value), [str(option) for option in known]
    if reasons := faults(tuple(SLOTS | NESTED_SLOTS), given) if path.endswith(".name") else []:
        return f"{path}: {reasons[0]}"
    near = difflib.get_close_matches(given, options, n=1)
    hint = f"did you mean {near[0]}? " if near else ""
    return f"{path}: {given!r} is not known; {hint}there is {', '.join(options)}"


def _walk(schema: Any, location: tuple[int | str, ...]) -> tuple[list[str], list[str], Mapping[str, str]]:
    """Return the path as the user wrote it, without the tags that a union adds, the keys known where it ends, and the
    keys that were renamed, with their present names."""
    where: list[str] = []
    known: list[str] = []
    renamed: dict[str, str] = {}
    current = [schema]
    for step in location:
        fields: dict[str, Any] = {}
        tags: dict[str, Any] = {}
        renamed = {}
        for option in _options(current):
            if isinstance(option, type) and issubclass(option, BaseModel):
                fields |= {name: info.annotation for name, info in option.model_fields.items()}
            elif dataclasses.is_dataclass(option):
                key = getattr(option, "__pydantic_config__", {}).get("alias_generator", str)
                hints = typing.get_type_hints(option)
                fields |= {key(item.name): hints[item.name] for item in dataclasses.fields(option)}
                renamed |= getattr(option, "renamed", {})
                tags[str(getattr(option, "name", ""))] = option
                tags[option.__name__] = option  # type: ignore[union-attr]
            elif isinstance(option, type):
                tags[option.__name__] = option
        if isinstance(step, str) and step not in fields and step in tags:
            current = [tags[step]]
            continue
        where.append(str(step))
        known = [name for name in fields if name != "name"]
        items = [get_args(option)[0] for option in _options(current) if get_origin(option) is list]
        current = items if isinstance(step, int) else [fields.get(step)]
    return where, known, renamed


def _options(types_here: list[Any]) -> list[Any]:
    """Return the alternatives of a type: members of unions, through Annotated."""
    options: list[Any] = []
    for option in types_here:
        origin = get_origin(option)
        if origin is typing.Annotated:
            options += _options([get_args(option)[0]])
        elif origin in (Union, types.UnionType):
            options += _options(list(get_args(option)))
        else:
            options.append(option)
    return options

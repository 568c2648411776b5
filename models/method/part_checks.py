"""Checks of a part's traits when its file is imported: a misspelt trait would otherwise load and train.

The public names of a part's class are its settings and the names that the class of its slot declares. Any other name is
a mistake: a trait that is never read, a method that is never called.
"""

from __future__ import annotations

import ast
import dataclasses
import difflib
import inspect
import sys
import typing
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any, get_args, get_origin

from annotated_types import Ge, Gt, Le, Lt
from pydantic import BaseModel
from pydantic.fields import FieldInfo

PROMISED = {"companion": "accompany", "exports": "export", "moves": "follow", "by_token": "tokens", "verifies": "right",
            "grades": "grade"}  # fmt: skip
"""Trait -> the method that a part with this trait must define itself."""


def check_part(part_class: type, base: type) -> None:
    """Check that a part's class defines only names that the class of its slot declares, and all that it requires.

    Args:
        part_class: the part, a dataclass.
        base: the class that declares the slot's traits (models.method.slot_part).

    Raises:
        TypeError: a trait or method that the slot does not know, that it requires and is missing, or that a trait
            requires; a setting without a default or a docstring, a number without bounds; no docstring of file or
            class.
            It names file, part and key.
    """
    try:
        _check_names(part_class, base)
        _check_methods(part_class, base)
        _check_settings(part_class)
        _check_docstrings(part_class)
    except TypeError as error:
        raise TypeError(f"{part_class.__module__}: {part_class.__name__}{error}") from None


def _defined_names(cls: type) -> list[str]:
    """List the public names that a class itself defines, with a value or only a type."""
    return [name for name in {**vars(cls), **inspect.get_annotations(cls)} if not name.startswith("_")]


def _check_names(part_class: type, base: type) -> None:
    settings = {item.name for item in dataclasses.fields(part_class)}
    declared = {name for cls in base.__mro__ for name in _defined_names(cls)}
    for name in (name for cls in part_class.__mro__ if cls not in base.__mro__ for name in _defined_names(cls)):
        if name not in declared | settings:
            near = difflib.get_close_matches(name, declared, n=1)
            hint = f"did you mean {near[0]}? " if near else ""
            raise TypeError(
                f".{name}: no trait of {base.__name__}; {hint}A setting needs a type, and what is for the part alone "
                "begins with an underscore"
            )
    for name in sorted(declared - settings):
        if not hasattr(part_class, name):
            raise TypeError(f": {name} is missing, which {base.__name__} asks for")


def _check_methods(part_class: type, base: type) -> None:
    if missing := sorted(getattr(part_class, "__abstractmethods__", ())):
        raise TypeError(f": {missing[0]} is missing, which {base.__name__} asks for")
    for trait, method in PROMISED.items():
        value = getattr(part_class, trait, False)
        if (
            value
            and not isinstance(value, property)
            and getattr(part_class, method, None) is getattr(base, method, None)
        ):
            raise TypeError(f": {trait} is {value}, but {method} is missing")


def _check_settings(part_class: type) -> None:
    hints, meanings = typing.get_type_hints(part_class, include_extras=True), docstrings(part_class)
    for item in dataclasses.fields(part_class):
        if item.name == "name":
            continue
        if item.default is dataclasses.MISSING and item.default_factory is dataclasses.MISSING:
            raise TypeError(f".{item.name}: a setting needs a default")
        if item.name not in meanings:
            raise TypeError(f".{item.name}: a setting needs a docstring below it, which the catalogue of parts prints")
        if not bounded(hints[item.name]):
            raise TypeError(f".{item.name}: a number needs bounds, such as pydantic's NonNegativeFloat")


def _check_docstrings(part_class: type) -> None:
    if (part_class.__doc__ or "").startswith(f"{part_class.__name__}("):  # what a dataclass without a docstring gets
        raise TypeError(": a part needs a docstring, which the catalogue of parts prints")
    if not (sys.modules[part_class.__module__].__doc__ or "").strip():
        raise TypeError(": its file needs a docstring: the formula, and the paper that it is from")


def bounded(hint: Any, inside: bool = False) -> bool:
    """Return whether every number in a type has a lower or an upper bound.

    Args:
        hint: a type, with its annotations.
        inside: whether an outer type has bounds already.
    """
    if hint in (int, float):
        return inside
    if get_origin(hint) is Annotated:
        inner, *around = get_args(hint)
        of_fields = [mark for item in around if isinstance(item, FieldInfo) for mark in item.metadata]
        return bounded(inner, inside or any(isinstance(mark, Ge | Gt | Le | Lt) for mark in (*around, *of_fields)))
    if get_origin(hint) is typing.Literal:
        return True
    return all(bounded(item, inside) for item in get_args(hint))


def docstrings(cls: type) -> dict[str, str]:
    """Return the docstring below each field of a class and of its bases, by the field's name."""
    docs: dict[str, str] = {}
    for base in reversed(cls.__mro__):
        if not (dataclasses.is_dataclass(base) or issubclass(base, BaseModel)):
            continue
        file = getattr(sys.modules.get(base.__module__), "__file__", None) or ""
        if file.endswith(".py"):
            docs |= _of_file(file).get(base.__name__, {})
    return docs


@lru_cache(maxsize=256)
def _of_file(file: str) -> dict[str, dict[str, str]]:
    """Read the docstrings of a file's classes: class -> field -> docstring."""
    docs: dict[str, dict[str, str]] = {}
    for node in ast.walk(ast.parse(Path(file).read_text(encoding="utf-8"))):
        if not isinstance(node, ast.ClassDef):
            continue
        for line, after in zip(node.body, node.body[1:], strict=False):
            if not (isinstance(line, ast.AnnAssign) and isinstance(line.target, ast.Name)):
                continue
            match after:
                case ast.Expr(value=ast.Constant(value=str(words))):
                    docs.setdefault(node.name, {})[line.target.id] = " ".join(words.split())
    return docs

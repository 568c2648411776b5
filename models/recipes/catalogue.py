"""Catalogue of the parts of every slot, with their settings, bounds, defaults, traits and source."""

from __future__ import annotations

import dataclasses
import difflib
import inspect
import math
import sys
import types
import typing
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from annotated_types import Ge, Gt, Le, Lt
from pydantic.fields import FieldInfo

from models.base.bounds import LARGEST
from models.base.errors import UserError
from models.method.part_checks import docstrings
from models.method.plugins import faults, plugin_of
from models.method.registry import NESTED_SLOTS, SLOTS, Part, Slot, parts, slot_class

_EVERY = SLOTS | NESTED_SLOTS
"""All slots: those of a round, and the others (`NESTED_SLOTS`)."""


@dataclass(frozen=True)
class Setting:
    """A setting of a part, as the catalogue shows it."""

    key: str
    """Key of the setting below the part, with dots between nested sections."""
    kind: str
    """Type of the value, with its bounds."""
    default: str
    meaning: str


@dataclass(frozen=True)
class PartEntry:
    """A part, as the catalogue shows it."""

    slot: Slot
    name: str
    summary: str
    """First line of the docstring of its class."""
    source: str
    """First line of the docstring of its file: the method and its paper."""
    file: str
    """File of its class; for a part of an installed package, its module."""
    package: str
    """Installed package that the part belongs to, with its version; "" for a part of this project."""
    settings: tuple[Setting, ...]
    traits: tuple[tuple[str, str], ...]
    """Names and values of the traits that differ from the slot's default, for the part's default settings."""


def entries(wanted: str = "") -> list[PartEntry]:
    """Return the parts of the slot `wanted`, or those with this name; all parts if it is empty.

    Raises:
        UserError: there is neither a slot nor a part of this name.
    """
    every = [_entry(slot, cls) for slot in _EVERY for cls in parts(slot).values()]
    chosen = [entry for entry in every if wanted in ("", entry.slot, entry.name)]
    if not chosen:
        if unusable := faults(tuple(_EVERY), wanted):
            raise UserError(*unusable)
        near = difflib.get_close_matches(wanted, [*_EVERY, *(entry.name for entry in every)], n=1)
        hint = f"did you mean {near[0]}?" if near else f"the slots are {', '.join(_EVERY)}"
        raise UserError(f"no slot and no part is called {wanted!r}; {hint}")
    return chosen


def _entry(slot: Slot, cls: type[Part]) -> PartEntry:
    module, plugin = sys.modules[cls.__module__], plugin_of(cls)
    return PartEntry(
        slot,
        cls.name,
        first_paragraph(cls.__doc__),
        first_paragraph(module.__doc__),
        cls.__module__.replace(".", "/") + ".py" if plugin is None else cls.__module__,
        "" if plugin is None else f"{plugin.package} {plugin.version}",
        tuple(_settings(cls())),
        tuple(_traits(cls(), slot_class(cls))),
    )


def first_paragraph(text: str | None) -> str:
    """Return the first paragraph of a docstring as one line; "" if there is none."""
    paragraph = inspect.cleandoc(text or "").partition("\n\n")[0]
    return " ".join(paragraph.split())


def _settings(built: Any, above: str = "") -> list[Setting]:
    """Return the settings of a part, or of a section inside it, with the values that they have in `built`."""
    hints, meanings = typing.get_type_hints(type(built), include_extras=True), docstrings(type(built))
    listed = []
    for item in dataclasses.fields(built):
        key, value = above + item.name, vars(built).get(item.name, item.default)
        if held := _parts_in(value):
            slot = held[0].slot
            kind = f"{'list of parts' if isinstance(value, list) else 'part'} of the slot {slot}"
            listed.append(Setting(key, kind, _yaml([part.name for part in held]), meanings.get(item.name, "")))
        elif dataclasses.is_dataclass(value):
            listed += _settings(value, f"{key}.")
        elif item.name != "name":
            listed.append(Setting(key, kind_of(hints[item.name]), _yaml(value), meanings.get(item.name, "")))
    return listed


def _parts_in(value: Any) -> list[Part]:
    """Return the parts held by a setting of another part; none if the setting holds no parts."""
    listed = value if isinstance(value, list) else [value]
    return [part for part in listed if isinstance(part, Part)]


def kind_of(hint: Any) -> str:
    """Describe a type with its bounds, in words: "number, 0 to 1", "whole number, at least 1, or null"."""
    if get_origin(hint) is Annotated:
        inner, *around = get_args(hint)
        marks = [*around, *(mark for info in around if isinstance(info, FieldInfo) for mark in info.metadata)]
        return ", ".join(filter(None, [kind_of(inner), _bounds(marks)]))
    if get_origin(hint) in (Union, types.UnionType):
        kinds = get_args(hint)
        if isinstance(kinds[0], type) and issubclass(kinds[0], Part):
            return f"part of the slot {kinds[0].slot}"
        return ", or ".join(kind_of(each) for each in kinds)
    if get_origin(hint) is Literal:
        return " | ".join(_yaml(each) for each in get_args(hint))
    if get_origin(hint) in (tuple, list):
        return f"list of: {kind_of(get_args(hint)[0])}"
    if get_origin(hint) in (Mapping, dict):
        return f"mapping of names to: {kind_of(get_args(hint)[1])}"
    if dataclasses.is_dataclass(hint):
        return f"section of {', '.join(item.name for item in dataclasses.fields(hint))}"
    return {int: "whole number", float: "number", bool: "true or false", str: "text", type(None): "null"}.get(hint, "")


def _bounds(marks: Sequence[Any]) -> str:
    low, high, words = -math.inf, math.inf, []
    for mark in marks:
        match mark:
            case Ge(ge=value):
                low = float(value)  # type: ignore[arg-type]
            case Le(le=value):
                high = float(value)  # type: ignore[arg-type]
            case Gt(gt=value):
                words.append(f"above {value:g}")  # type: ignore[str-format]
            case Lt(lt=value):
                words.append(f"below {value:g}")  # type: ignore[str-format]
    if low > -LARGEST and high < LARGEST:
        return f"{low:g} to {high:g}"
    if low > -LARGEST:
        words.append(f"at least {low:g}")
    if high < LARGEST:
        words.append(f"at most {high:g}")
    return " and ".join(words)


def _yaml(value: Any) -> str:
    if isinstance(value, tuple | list):
        return f"[{', '.join(_yaml(item) for item in value)}]"
    if isinstance(value, str):
        return repr(value) if value == "" or set(value) - set(_PLAIN) else value
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    return f"{value:g}" if isinstance(value, float) else str(value)


_PLAIN = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-"


def _traits(built: Any, base: type) -> list[tuple[str, str]]:
    """Return the traits whose values differ from the defaults of the slot's class, by name."""
    settings = {item.name for item in dataclasses.fields(built)}
    traits = {name: property_ for cls in base.__mro__ for name, property_ in vars(cls).items()}
    listed = [("level", built.level)] if "level" in base.__annotations__ else []
    for name, silent in traits.items():
        if name in settings or not isinstance(silent, property) or silent.fget is None:
            continue
        own = inspect.getattr_static(type(built), name)
        value = own.fget(built) if isinstance(own, property) and own.fget else own
        abstract = name in base.__abstractmethods__  # type: ignore[attr-defined]
        if own is not silent and not abstract and value != silent.fget(built):
            listed.append((name, "given" if dataclasses.is_dataclass(value) else _yaml(value)))
    return sorted(listed)


def as_text(chosen: Sequence[PartEntry], whole: bool) -> str:
    """Format parts for a terminal: one line for each part or, if `whole`, all details of each."""
    if whole:
        return "\n\n".join(_page(entry) for entry in chosen)
    width = max(len(entry.name) for entry in chosen)
    lines = []
    for slot in dict.fromkeys(entry.slot for entry in chosen):
        lines += ["", slot]
        for entry in chosen:
            if entry.slot == slot:
                mark = "*" if entry.name == _EVERY[slot].default else " "
                package = f"  [{entry.package}]" if entry.package else ""
                lines.append(f" {mark}{entry.name:<{width}}  {entry.summary}{package}")
    legend = "* stands where a recipe names none; `rewardflow parts NAME` prints the settings of a part"
    return "\n".join([*lines[1:], "", legend])


def _page(entry: PartEntry) -> str:
    lines = [f"{entry.slot}: {{name: {entry.name}}}", entry.summary, f"from    {entry.source}", f"file    {entry.file}"]
    lines += [f"package {entry.package}"] if entry.package else []
    lines += [f"trait   {name}: {value}" for name, value in entry.traits]
    for setting in entry.settings:
        lines += [f"  {setting.key}: {setting.default}    ({setting.kind})", f"      {setting.meaning}"]
    return "\n".join(lines)


def as_pages() -> dict[str, str]:
    """Render the pages of the guide: file name -> Markdown, one page a slot and README.md, which lists them.

    Parts of installed packages are left out: the pages are those of the project.
    """
    every = [entry for entry in entries() if not entry.package]
    pages = {}
    index = [
        "# Parts",
        "",
        "A recipe names a part for each slot. Each slot has a page of its parts, with settings, bounds and defaults.",
        "`rewardflow parts --write docs/parts` writes these pages. The files of the slots in `models/method/`",
        "explain the traits.",
        "",
        "| slot | parts | default |",
        "| --- | --- | --- |",
    ]
    for slot in dict.fromkeys(entry.slot for entry in every):
        chosen = [entry for entry in every if entry.slot == slot]
        default = _EVERY[slot].default
        index.append(f"| [{slot}]({slot}.md) | {len(chosen)} | {f'`{default}`' if default else ''} |")
        pages[f"{slot}.md"] = _slot_page(slot, chosen)
    return {"README.md": "\n".join(index) + "\n", **pages}


def _slot_page(slot: Slot, chosen: Sequence[PartEntry]) -> str:
    lines = [f"# Parts of the slot `{slot}`", "", "A star marks the part that a recipe has if it names none."]
    for entry in chosen:
        star = " *" if entry.name == _EVERY[slot].default else ""
        place = f"[{entry.file}](../../{entry.file})"
        lines += ["", f"## {entry.name}{star}", "", entry.summary, "", f"{place}: {entry.source}"]
        if entry.traits:
            lines += ["", "Traits: " + ", ".join(f"`{name}: {value}`" for name, value in entry.traits)]
        if entry.settings:
            lines += ["", "| setting | default | may be | meaning |", "| --- | --- | --- | --- |"]
        for setting in entry.settings:
            cells = (f"`{setting.key}`", f"`{setting.default}`", setting.kind, setting.meaning)
            lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return "\n".join(lines) + "\n"

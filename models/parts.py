"""The parts that a recipe can name: one list of slots, and one registry of their parts.

A part is a frozen, typed class in a file of its own, derived from the class of its slot (models.loop.slots). Its fields
are its settings, which a recipe lists next to `name:`. To use a part, name it in the recipe: the files of a slot's
package are imported automatically.

    @part("tapered")
    class Tapered(Objective):
        level = "token"
        ceiling: Annotated[float, Field(gt=0)] = 1.0
        \"\"\"Weight of ...\"\"\"
        def __call__(self, log_prob, batch): ...
"""

from __future__ import annotations

import importlib
import inspect
import os
import pkgutil
from abc import ABC
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar, Literal, TypeVar, dataclass_transform

from models.errors import UserError
from models.part_checks import check_part
from models.source_code import NOT_ON_IMPORT, GivenFile
from models.user_code.contain import UserCodeError, leaving

Slot = Literal[
    "rollouts",
    "rewards",
    "select",
    "advantage",
    "objective",
    "reference",
    "environment",
    "tool",
    "strategy",
    "labels",
    "feedback",
]


@dataclass(frozen=True)
class SlotInfo:
    """Properties of a slot as a whole."""

    default: str
    """The part that is used if a recipe names none."""
    many: bool = False
    """Whether a recipe may name several, which are applied one after the other."""


SLOTS: dict[Slot, SlotInfo] = {
    "rollouts": SlotInfo("sample"),
    "rewards": SlotInfo("exact_answer", many=True),
    "select": SlotInfo("drop_flat", many=True),
    "advantage": SlotInfo("group_relative"),
    "objective": SlotInfo("grpo"),
    "reference": SlotInfo("frozen"),
}
"""Slots in the order of a round. A slot's key in the recipe is the name of the package with its parts."""

INSIDE: dict[Slot, SlotInfo] = {
    "environment": SlotInfo("tools"),
    "tool": SlotInfo("calculator", many=True),
    "strategy": SlotInfo("plain"),
    "labels": SlotInfo("monte_carlo"),
    "feedback": SlotInfo("verdict"),
}
"""Slots inside of a part: `rollouts.environment` and `rollouts.environment.tool`, the `feedback` of rollouts and
rewards. Or inside of a section, the `labels` of `reward_model.process`, or outside the recipe: the `strategy` of
`rewardflow evaluate`. Their parts are found in the same way."""


class Part(ABC):
    """The base class of every part, whatever its slot."""

    slot: ClassVar[Slot]
    name: str
    """Name of the part in the recipe."""

    @property
    def given(self) -> tuple[GivenFile, ...]:
        """The user's own files that it reads, by their content: recorded on the run, and compared with the commit."""
        return ()

    def try_out(self) -> None:  # noqa: B027 - most have nothing to try
        """Raise a UserError, before anything starts, if the first round would fail; nothing is tried by default."""


_PARTS: dict[Slot, dict[str, type[Part]]] = {slot: {} for slot in (*SLOTS, *INSIDE)}

Made = TypeVar("Made", bound=Part)


def slot_class(cls: type[Part]) -> type[Part]:
    """Return the class that declares the traits of a part's slot: the nearest of its bases that names a slot."""
    return next(base for base in cls.__mro__ if "slot" in vars(base))


@dataclass_transform(kw_only_default=True, frozen_default=True)
def part(name: str) -> Callable[[type[Made]], type[Made]]:
    """Make a class a frozen dataclass and register it as the part `name` of its slot.

    Raises:
        TypeError: the class declares a name that its slot does not know (`models.part_checks`).
        ValueError: the slot has another part of this name.
    """

    def register(cls: type[Made]) -> type[Made]:
        known = _PARTS[cls.slot]
        if name in known and known[name].__module__ != cls.__module__:
            raise ValueError(f"two parts are called {name!r} in the slot {cls.slot}")
        cls.__annotations__ = {"name": Literal[name], **inspect.get_annotations(cls)}  # type: ignore[valid-type]
        setattr(cls, "name", name)  # noqa: B010 - the default of the field that pydantic discriminates by
        made = dataclass(frozen=True, kw_only=True)(cls)
        check_part(made, slot_class(cls))
        known[name] = made
        return made

    return register


def parts(slot: Slot) -> dict[str, type[Part]]:
    """Return all parts of a slot by name; every file of the slot's package is imported once.

    Raises:
        TypeError: a file among them holds no part.
    """
    folders = tuple(importlib.import_module(f"models.{slot}").__path__)
    _import_parts(slot, folders, tuple(os.stat(folder).st_mtime_ns for folder in folders))
    return dict(sorted(_PARTS[slot].items()))


@lru_cache(maxsize=64)
def _import_parts(slot: Slot, folders: tuple[str, ...], changed: tuple[int, ...]) -> None:
    """Import every file of a slot's package; again only when a folder of it `changed`, in nanoseconds of the clock."""
    modules = [f"models.{slot}.{module.name}" for module in pkgutil.iter_modules(folders)]
    for module in modules:
        try:
            with leaving(module, "importing it"):
                importlib.import_module(module)
        except UserCodeError as error:
            raise UserError(f"{error}; {NOT_ON_IMPORT}") from None
    holding = {cls.__module__ for cls in _PARTS[slot].values()}
    if strangers := [module for module in modules if module not in holding]:
        raise TypeError(f"{strangers[0]} stands among the parts of {slot} and holds none; its place is models.formulas")


def default_part(slot: Slot) -> Any:
    """Return the class of the part that is used if a recipe names none."""
    return parts(slot)[(SLOTS | INSIDE)[slot].default]

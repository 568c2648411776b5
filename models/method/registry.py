"""The parts that a recipe can name: one list of slots, and one registry of their parts.

A part is a frozen, typed class in a file of its own, derived from the class of its slot (models.method). Its
fields are its settings, which a recipe lists next to `name:`. To use a part, name it in the recipe: the files of a
slot's package are imported automatically, and so are those that installed packages declare (models.method.plugins).

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
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Annotated, Any, ClassVar, Literal, TypeVar, Union, dataclass_transform

from pydantic import BeforeValidator, Field

from models.base.errors import UserError
from models.base.source_code import NOT_ON_IMPORT, GivenFile
from models.base.user_code.contain import UserCodeError, leaving
from models.method.part_checks import check_part
from models.method.plugins import import_plugins

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
    """Name of the part that is used if a recipe names none."""
    package: str
    """Package with the slot's parts, which may be in packages below it."""
    many: bool = False
    """Whether a recipe may name several parts, which are applied one after the other."""


SLOTS: dict[Slot, SlotInfo] = {
    "rollouts": SlotInfo("sample", "models.parts.rollouts"),
    "rewards": SlotInfo("exact_answer", "models.parts.rewards", many=True),
    "select": SlotInfo("drop_flat", "models.parts.select", many=True),
    "advantage": SlotInfo("group_relative", "models.parts.advantage"),
    "objective": SlotInfo("grpo", "models.parts.objective"),
    "reference": SlotInfo("frozen", "models.parts.reference"),
}
"""Slots in the order of a round, by their key in the recipe."""
NESTED_SLOTS: dict[Slot, SlotInfo] = {
    "environment": SlotInfo("tools", "models.agents.environments"),
    "tool": SlotInfo("calculator", "models.agents.tools", many=True),
    "strategy": SlotInfo("plain", "models.agents.strategies"),
    "labels": SlotInfo("monte_carlo", "models.parts.labels"),
    "feedback": SlotInfo("verdict", "models.parts.feedback"),
}
"""Slots that are not part of a round; their parts are found in the same way.

Inside of a part: `rollouts.environment`, `rollouts.environment.tool`, and the `feedback` of rollouts and rewards.
Inside of a section: the `labels` of `reward_model.process`. Outside the recipe: `strategy` of `rewardflow evaluate`.
"""


class Part(ABC):
    """The base class of every part, whatever its slot."""

    slot: ClassVar[Slot]
    name: str
    """Name of the part in the recipe."""
    renamed: ClassVar[Mapping[str, str]] = {}
    """Former names of settings, with the new name: a recipe that still uses one is refused with a hint to the new."""

    @property
    def given(self) -> tuple[GivenFile, ...]:
        """The user's own files that the part has read; they are recorded on the run and compared with the commit."""
        return ()

    def try_out(self) -> None:  # noqa: B027 - most have nothing to try
        """Test, before anything starts, whether the first round would fail; does nothing by default.

        Raises:
            UserError: it would.
        """


_PARTS: dict[Slot, dict[str, type[Part]]] = {slot: {} for slot in (*SLOTS, *NESTED_SLOTS)}
Made = TypeVar("Made", bound=Part)


def slot_class(cls: type[Part]) -> type[Part]:
    """Return the class that declares the traits of a part's slot: the first in its MRO that sets `slot`."""
    return next(base for base in cls.__mro__ if "slot" in vars(base))


@dataclass_transform(kw_only_default=True, frozen_default=True)
def part(name: str) -> Callable[[type[Made]], type[Made]]:
    """Make a class a frozen dataclass and register it as the part `name` of its slot.

    Raises:
        TypeError: the class declares a name that its slot does not know (`models.method.part_checks`).
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
    """Return all parts of a slot, name -> class; imports every file of the slot's package, and the slot's plugins.

    Raises:
        TypeError: a file among them holds no part.
    """
    package = importlib.import_module((SLOTS | NESTED_SLOTS)[slot].package)
    folders = tuple(package.__path__)
    rooms = [entry for folder in folders for entry in os.scandir(folder) if entry.is_dir()]
    changed = (*(os.stat(folder).st_mtime_ns for folder in folders), *(entry.stat().st_mtime_ns for entry in rooms))
    _import_parts(slot, folders, changed)
    import_plugins(slot, _PARTS[slot])
    return dict(sorted(_PARTS[slot].items()))


@lru_cache(maxsize=64)
def _import_parts(slot: Slot, folders: tuple[str, ...], changed: tuple[int, ...]) -> None:
    """Import every file of a slot's package; again only when a folder of it `changed`, in nanoseconds of the clock."""
    package = (SLOTS | NESTED_SLOTS)[slot].package
    modules = [module.name for module in pkgutil.walk_packages(folders, f"{package}.") if not module.ispkg]
    for module in modules:
        try:
            with leaving(module, "importing it"):
                importlib.import_module(module)
        except UserCodeError as error:
            raise UserError(f"{error}; {NOT_ON_IMPORT}") from None
    holding = {cls.__module__ for cls in _PARTS[slot].values()}
    if strangers := [module for module in modules if module not in holding]:
        raise TypeError(
            f"{strangers[0]} stands among the parts of {slot} and holds none; its place is models.parts.shared"
        )


def default_part(slot: Slot) -> Any:
    """Return the class of a slot's default part, which is used if a recipe names none."""
    return parts(slot)[(SLOTS | NESTED_SLOTS)[slot].default]


@dataclass(frozen=True)
class WithName:
    """Validator that adds the name of a slot's default part to settings without a name."""

    slot: Slot
    default: str

    def __call__(self, value: Any) -> Any:
        """Return `value` with a name, if it is a mapping."""
        return {"name": self.default, **value} if isinstance(value, dict) else value


def as_list(value: Any) -> Any:
    """Return a single part as a list of one; other values are returned unchanged."""
    return [value] if isinstance(value, dict) else value


def slot_type(slot: Slot, kind: type = object, default: str | None = None) -> Any:
    """Build the pydantic type of a slot's key in a recipe: the union of its parts, discriminated by `name`.

    If a recipe may name several parts, it is a list of them, and a single part is read as a list of one.

    Args:
        slot: the slot.
        kind: only its subclasses belong to the union.
        default: part that is used if no name is given; None: the slot's own default.
    """
    info = (SLOTS | NESTED_SLOTS)[slot]
    classes = tuple(part for part in parts(slot).values() if issubclass(part, kind))
    union: Any = Annotated[Union[classes], Field(discriminator="name")]  # noqa: UP007 - a union of a computed tuple
    single: Any = Annotated[union, BeforeValidator(WithName(slot, default or info.default))]
    return Annotated[list[single], BeforeValidator(as_list)] if info.many else single

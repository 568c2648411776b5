"""The parts that a recipe can name: one registry for the slots of the loop.

A part is a frozen, typed class in a file of its own; its fields are its settings and stand in the recipe
beside `name:`. Naming it in the recipe is all it takes: files of a slot's package are found by themselves.

    @part("objective", "tapered")
    class Tapered:
        ceiling: float = 1.0
        def __call__(self, log_prob, batch): ...
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, TypeVar, dataclass_transform

Slot = Literal["rollouts", "reward", "select", "advantage", "objective", "reference"]

PACKAGES: dict[Slot, str] = {
    "rollouts": "models.sources",
    "reward": "models.rewards",
    "select": "models.selectors",
    "advantage": "models.advantages",
    "objective": "models.objectives",
    "reference": "models.references",
}

_PARTS: dict[Slot, dict[str, type]] = {slot: {} for slot in PACKAGES}

Part = TypeVar("Part", bound=type)


@dataclass_transform(kw_only_default=True, frozen_default=True)
def part(slot: Slot, name: str) -> Callable[[Part], Part]:
    """Make a class a frozen dataclass and register it as the part `name` of `slot`."""

    def register(cls: Part) -> Part:
        if name in _PARTS[slot] and _PARTS[slot][name].__module__ != cls.__module__:
            raise ValueError(f"two parts are called {name!r} in the slot {slot}")
        cls.__annotations__ = {"name": Literal[name], **cls.__annotations__}  # type: ignore[valid-type]
        setattr(cls, "name", name)  # noqa: B010 - the default of the field that pydantic discriminates by
        made: Part = dataclass(frozen=True, kw_only=True)(cls)  # type: ignore[assignment]
        _PARTS[slot][name] = made
        return made

    return register


def parts(slot: Slot) -> dict[str, type]:
    """All parts of a slot by name; imports every file of the slot's package once."""
    package = importlib.import_module(PACKAGES[slot])
    for module in pkgutil.iter_modules(package.__path__):
        importlib.import_module(f"{PACKAGES[slot]}.{module.name}")
    return dict(sorted(_PARTS[slot].items()))


def level_of(built: Any) -> str:
    """At which level a reward or an objective speaks: token, completion, pair or group."""
    return str(getattr(built, "level", "completion"))

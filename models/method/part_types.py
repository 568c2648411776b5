"""The types of a recipe's keys that name a part: the union of all parts of a slot, discriminated by `name`."""

from __future__ import annotations

from typing import Annotated, Any, Union

from pydantic import BeforeValidator, Field

from models.method.registry import INSIDE, SLOTS, Slot, parts


def _as_list(value: Any) -> Any:
    return [value] if isinstance(value, dict) else value


def slot_type(slot: Slot, kind: type = object, default: str | None = None) -> Any:
    """Build the type of a slot's key: the union of its parts that are of `kind`, discriminated by `name`. It is a list
    of them, or a single part, if a recipe may name several. `default` is used if no name is given; None: the slot's
    own."""

    info = (SLOTS | INSIDE)[slot]

    def named(value: Any) -> Any:
        return {"name": default or info.default, **value} if isinstance(value, dict) else value

    classes = tuple(part for part in parts(slot).values() if issubclass(part, kind))
    union: Any = Annotated[Union[classes], Field(discriminator="name")]  # noqa: UP007 - a union of a computed tuple
    single: Any = Annotated[union, BeforeValidator(named)]
    return Annotated[list[single], BeforeValidator(_as_list)] if info.many else single

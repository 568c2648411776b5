"""Bounds of settings, checked when a recipe is read."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import BaseModel, Field

from models.base.errors import shortened

LARGEST = 2**32 - 1
"""Largest number that a recipe may contain; a setting without a limit takes `null` instead."""

Positive = Annotated[int, Field(ge=1, le=LARGEST)]
"""A count of at least one."""

Count = Annotated[int, Field(ge=0, le=LARGEST)]
"""A count of at least zero."""

Seed = Annotated[int, Field(ge=0, le=LARGEST)]
"""A seed that every random generator accepts."""

Temperature = Annotated[float, Field(gt=0, le=100)]
"""Temperature of sampling, above zero: at zero, all completions of a prompt are equal and nothing can be learned."""

Number = Annotated[float, Field(ge=-LARGEST, le=LARGEST)]
"""Any finite number from -`LARGEST` to `LARGEST`."""

Share = Annotated[float, Field(ge=0, le=1)]
"""A share of a whole, in [0, 1]."""


def require_finite(value: Any, path: str = "") -> None:
    """Check that every number in a value is finite and at most `LARGEST` in magnitude.

    Args:
        value: mappings, lists, sections and parts, nested in one another.
        path: path of the value in the recipe, for the error message.

    Raises:
        ValueError: a number is not; the message begins with its path.
    """
    if isinstance(value, BaseModel):
        value = {name: getattr(value, name) for name in type(value).model_fields}
    elif dataclasses.is_dataclass(value):
        value = {item.name: getattr(value, item.name) for item in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        for key, entry in value.items():
            require_finite(entry, f"{path}.{key}" if path else str(key))
    elif isinstance(value, (list, tuple)):
        for place, entry in enumerate(value):
            require_finite(entry, f"{path}.{place}" if path else str(place))
    elif isinstance(value, (int, float)) and not isinstance(value, bool):
        where = f"{shortened(path)}: " if path else ""
        if isinstance(value, float) and not math.isfinite(value):
            raise ValueError(f"{where}{value} is not a finite number")
        if abs(value) > LARGEST:
            shown = shortened(value) if abs(value) < 10**400 else "this"
            raise ValueError(f"{where}{shown} is larger than {LARGEST}, the largest number that a recipe may hold")

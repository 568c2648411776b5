"""How often the host waits for the device in one step, and where: torch's own warnings of it, counted.

Torch warns of copies between host and device that block, of values that are read and of shapes that depend on values;
what it does not warn of (its documentation names the distributed and sparse parts) is not counted.
"""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

SAYING = "called a synchronizing CUDA operation"
"""How torch puts it."""
TOP = 8
"""Places that are kept, those with most waits."""
ROOT = Path(__file__).parents[1]


@dataclass(frozen=True)
class Waits:
    """Of one step."""

    count: int | None = None
    """None where they could not be counted."""
    places: Mapping[str, int] = field(default_factory=dict)
    """Waits by the line of Python that was being run, `file:line`; those of a backward pass stand where it began."""
    failure: str = "not asked for"
    """Why there is no count."""


def waits_of(step: Callable[[], Any], device: torch.device) -> Waits:
    """Count the waits of one call; what it raises becomes the failure."""
    if device.type != "cuda":
        return Waits(failure="only CUDA counts them")
    places: list[str] = []
    try:
        with counted(places):
            step()
    except Exception as error:  # the seconds that were measured before it stay
        return Waits(failure=f"not counted: {type(error).__name__}: {error}"[:300])
    return Waits(len(places), dict(Counter(places).most_common(TOP)), "")


@contextmanager
def counted(places: list[str]) -> Iterator[None]:
    """Add the place of every wait inside to `places`. Torch's mode is afterwards what it was before."""
    before = torch.cuda.get_sync_debug_mode()
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        torch.cuda.set_sync_debug_mode("warn")
        try:
            yield
        finally:
            torch.cuda.set_sync_debug_mode(before)
    places += [f"{_short(warning.filename)}:{warning.lineno}" for warning in seen if SAYING in str(warning.message)]


def _short(file: str) -> str:
    """A path from the package on, or from this checkout."""
    inside = file.split("site-packages/")[-1]
    return inside.removeprefix(f"{ROOT}/")

"""Number and places of the host's waits for the device in one step, from torch's own warnings.

Torch warns of copies between host and device that block, of values that are read and of shapes that depend on values;
waits without a warning (torch's documentation names the distributed and sparse parts) are not counted.
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
"""Text of torch's warning."""
TOP = 8
"""Number of places that are kept, those with most waits."""
ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class Waits:
    """Waits of one step."""

    count: int | None = None
    """Number of waits; None if they could not be counted."""
    places: Mapping[str, int] = field(default_factory=dict)
    """Waits by the line of Python being run, `file:line`; those of a backward pass count at the line that began it."""
    failure: str = "not requested"
    """Reason why they could not be counted."""


def waits_of(step: Callable[[], Any], device: torch.device) -> Waits:
    """Count the waits of one call; an exception becomes the failure."""
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
    """Add the place of every wait inside to `places`. Torch's mode is restored afterwards."""
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
    """Shorten a path to its part from the package, or from this checkout."""
    inside = file.split("site-packages/")[-1]
    return inside.removeprefix(f"{ROOT}/")

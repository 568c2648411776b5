"""How a benchmark is run, the same for all."""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass


@dataclass(frozen=True)
class Settings:
    """Of one call of `python -m benchmarks`."""

    repeats: int = 5
    """Samples of each side; the median is told."""
    quick: bool = False
    """Tiny shapes, one repeat: shows that everything runs, its figures mean nothing."""

    @property
    def samples(self) -> int:
        return 1 if self.quick else self.repeats

    @property
    def warm(self) -> int:
        return 1 if self.quick else 2


def has_trl() -> bool:
    """Whether the peer is installed."""
    return importlib.util.find_spec("trl") is not None


def positive(text: str) -> float:
    """A number of the command line.

    Raises:
        ValueError: it is no number above 0; argparse says so.
    """
    if not (value := float(text)) > 0:
        raise ValueError
    return value


def not_negative(text: str) -> float:
    """A number of the command line.

    Raises:
        ValueError: it is below 0, or none; argparse says so.
    """
    if not (value := float(text)) >= 0:
        raise ValueError
    return value


def at_least_one(text: str) -> int:
    """A count of the command line.

    Raises:
        ValueError: it is no whole number above 0; argparse says so.
    """
    if (value := int(text)) < 1:
        raise ValueError
    return value

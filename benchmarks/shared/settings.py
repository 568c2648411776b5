"""Settings of a benchmark run, the same for all."""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass


@dataclass(frozen=True)
class Settings:
    """Settings of one call of `python -m benchmarks`."""

    repeats: int = 5
    """Samples of each side; the median is reported."""
    quick: bool = False
    """Tiny shapes, one repeat: shows that everything runs; its figures are meaningless."""

    @property
    def samples(self) -> int:
        return 1 if self.quick else self.repeats

    @property
    def warm(self) -> int:
        return 1 if self.quick else 2


def has_trl() -> bool:
    """Return whether the peer is installed."""
    return importlib.util.find_spec("trl") is not None


def positive(text: str) -> float:
    """Read a number of the command line.

    Raises:
        ValueError: it is not a number above 0; argparse reports it.
    """
    if not (value := float(text)) > 0:
        raise ValueError
    return value


def not_negative(text: str) -> float:
    """Read a number of the command line.

    Raises:
        ValueError: it is below 0, or not a number; argparse reports it.
    """
    if not (value := float(text)) >= 0:
        raise ValueError
    return value


def at_least_one(text: str) -> int:
    """Read a count of the command line.

    Raises:
        ValueError: it is not a whole number above 0; argparse reports it.
    """
    if (value := int(text)) < 1:
        raise ValueError
    return value

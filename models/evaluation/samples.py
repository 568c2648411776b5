"""Samples of numbers or of kinds, stored as the count of each value: small on disk and lossless."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from models.base.errors import UserError

DIGITS = 4
"""Decimals of a stored number, so that a share of tokens has at most ten thousand values."""


@dataclass(frozen=True)
class Numbers:
    """A sample of numbers."""

    values: tuple[float, ...]
    """Distinct values, rising."""
    counts: tuple[int, ...]
    """Count of each value."""

    @classmethod
    def of(cls, numbers: ArrayLike) -> Numbers:
        """Return the sample of the finite values of `numbers`, any shape."""
        array = np.asarray(numbers, dtype=np.float64).reshape(-1)
        values, counts = np.unique(np.round(array[np.isfinite(array)], DIGITS) + 0.0, return_counts=True)
        return cls(tuple(values.tolist()), tuple(counts.tolist()))

    @property
    def size(self) -> int:
        """Number of values."""
        return sum(self.counts)

    @property
    def each(self) -> NDArray[np.float64]:
        """All values, rising, [size]."""
        return np.repeat(np.array(self.values, dtype=np.float64), np.array(self.counts, dtype=np.int64))


@dataclass(frozen=True)
class Kinds:
    """A sample of categorical values."""

    counts: Mapping[str, int]
    """Kind -> count."""

    @classmethod
    def of(cls, kinds: Iterable[str]) -> Kinds:
        """Return the sample of these kinds."""
        return cls(dict(sorted(Counter(kinds).items())))

    @property
    def size(self) -> int:
        """Number of values of all kinds."""
        return sum(self.counts.values())


Sample = Numbers | Kinds


def as_json(samples: Mapping[str, Sample]) -> str:
    """Return samples by name as JSON that `from_json` reads."""
    return json.dumps({name: _plain(sample) for name, sample in samples.items()}, ensure_ascii=False)


def from_json(text: str) -> dict[str, Sample]:
    """Read the samples from the output of `as_json`.

    Raises:
        UserError: the text has another format.
    """
    try:
        return {str(name): _sample(plain) for name, plain in json.loads(text).items()}
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise UserError(f"samples cannot be read ({type(error).__name__}: {error})") from error


def _plain(sample: Sample) -> dict[str, object]:
    if isinstance(sample, Numbers):
        return {"values": sample.values, "counts": sample.counts}
    return {"kinds": dict(sample.counts)}


def _sample(plain: Mapping[str, object]) -> Sample:
    if "kinds" in plain:
        return Kinds({str(kind): int(count) for kind, count in plain["kinds"].items()})  # type: ignore[attr-defined]
    values, counts = plain["values"], plain["counts"]
    pairs = list(zip(map(float, values), map(int, counts), strict=True))  # type: ignore[call-overload]
    return Numbers(tuple(value for value, _ in pairs), tuple(count for _, count in pairs))

"""Rows of a Parquet file whose values are converted to Python objects only on access.

A table may have columns that are never read, and values that Python cannot represent: dates out of range, bytes that
are not text. Such a value becomes `Unreadable`. If it is read, it is refused with its row and column.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

FAILS = (ArithmeticError, LookupError, TypeError, ValueError, pa.ArrowException)
"""Errors for values that Python cannot represent: dates out of range, unknown time zones, invalid text."""


@dataclass(frozen=True, slots=True)
class Unreadable:
    """Placeholder in a row for a value that cannot be read."""

    reason: str


@dataclass(frozen=True)
class ArrowRows:
    """The rows of a record batch."""

    batch: pa.RecordBatch

    def __iter__(self) -> Iterator[Mapping[str, Any]]:
        columns = _Columns(dict(zip(self.batch.schema.names, self.batch.columns, strict=True)))
        return (_ArrowRow(columns, at) for at in range(self.batch.num_rows))


class _Columns(dict[str, list[Any]]):
    """Column -> its values, converted when the first of them is accessed."""

    def __init__(self, arrays: Mapping[str, pa.Array]) -> None:
        super().__init__()
        self.arrays = arrays

    def __missing__(self, name: str) -> list[Any]:
        values = self[name] = _values(self.arrays[name])
        return values


class _ArrowRow(Mapping[str, Any]):
    __slots__ = ("_at", "_columns")

    def __init__(self, columns: _Columns, at: int) -> None:
        self._columns, self._at = columns, at

    def __getitem__(self, name: str) -> Any:
        return self._columns[name][self._at]

    def __iter__(self) -> Iterator[str]:
        return iter(self._columns.arrays)

    def __len__(self) -> int:
        return len(self._columns.arrays)

    def __reduce__(self) -> tuple[type[dict[str, Any]], tuple[dict[str, Any]]]:
        """Pickle the row alone, without its batch."""
        own = {name: _values(array.slice(self._at, 1))[0] for name, array in self._columns.arrays.items()}
        return dict, (own,)


def _values(array: pa.Array) -> list[Any]:
    try:
        return list(array.to_pylist())
    except FAILS:
        return [_value(array, at) for at in range(len(array))]


def _value(array: pa.Array, at: int) -> Any:
    try:
        return array[at].as_py()
    except FAILS as error:
        return Unreadable(f"{type(error).__name__}: {' '.join(str(error).split())}")

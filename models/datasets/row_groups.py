"""Rows written to a Parquet file piece by piece, so that the file's bytes hang on the rows and not on the pieces."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

GROUP_ROWS = 1 << 17
GROUP_CHARACTERS = 1 << 27
"""A row group ends with the row that brings it to so many rows, or to so many bytes of text."""


class RowGroups:
    """Rows on their way into a file: what comes is cut into row groups."""

    def __init__(self, writer: pq.ParquetWriter) -> None:
        self.writer = writer
        self.rows = 0
        """Rows given so far."""
        self._waiting: list[pa.Table] = []
        self._held = self._characters = 0

    def add(self, table: pa.Table) -> None:
        """Take rows of the file's schema."""
        self.rows += table.num_rows
        sizes = np.cumsum(_characters(table))
        start = 0
        while start < table.num_rows:
            before = int(sizes[start - 1]) if start else 0
            by_text = int(np.searchsorted(sizes, before + GROUP_CHARACTERS - self._characters)) + 1
            end = min(table.num_rows, start + GROUP_ROWS - self._held, by_text)
            self._waiting.append(table.slice(start, end - start))
            self._held += end - start
            self._characters += int(sizes[end - 1]) - before
            if self._held >= GROUP_ROWS or self._characters >= GROUP_CHARACTERS:
                self.flush()
            start = end

    def flush(self) -> None:
        """Write what waits as a row group."""
        if self._waiting:
            whole = pa.concat_tables(self._waiting).combine_chunks()
            self.writer.write_table(whole, row_group_size=max(1, whole.num_rows))
        self._waiting, self._held, self._characters = [], 0, 0


@contextmanager
def row_groups(path: Path, schema: pa.Schema) -> Iterator[RowGroups]:
    """A Parquet file that is written while the block lasts."""
    with pq.ParquetWriter(path, schema, compression="zstd") as writer:
        groups = RowGroups(writer)
        yield groups
        groups.flush()


def _characters(table: pa.Table) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """Bytes of text of each row, [rows]."""
    total = np.zeros(table.num_rows, dtype=np.int64)
    for column in table.columns:
        if pa.types.is_string(column.type):
            total += pc.binary_length(column).to_numpy()
    return total

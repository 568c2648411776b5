"""Rows written to a Parquet file piece by piece, so that the file's bytes depend on the rows and not the pieces."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

GROUP_ROWS = 1 << 17
GROUP_CHARACTERS = 1 << 27
"""A row group ends with the row that brings it to this many rows, or to this many bytes of text."""


class RowGroups:
    """Writer of a file that cuts the incoming rows into row groups."""

    def __init__(self, writer: pq.ParquetWriter, pool: Executor) -> None:
        """Create a writer; `pool` has one thread, which writes a row group while the next one is collected."""
        self.writer = writer
        self._pool, self._written = pool, Future[None]()
        self._written.set_result(None)
        self.rows = 0
        """Number of rows added so far."""
        self._waiting: list[pa.Table] = []
        self._held = self._characters = 0

    def add(self, table: pa.Table) -> None:
        """Add rows of the file's schema."""
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
        """Start to write the waiting rows as a row group. Raises any error of writing the previous one."""
        self._written.result()
        if self._waiting:
            self._written = self._pool.submit(self._write, self._waiting)
        self._waiting, self._held, self._characters = [], 0, 0

    def close(self) -> None:
        """Write the rest. Raises any error of writing a row group."""
        self.flush()
        self._written.result()

    def _write(self, tables: list[pa.Table]) -> None:
        whole = pa.concat_tables(tables).combine_chunks()
        self.writer.write_table(whole, row_group_size=max(1, whole.num_rows))


@contextmanager
def row_groups(path: Path, schema: pa.Schema) -> Iterator[RowGroups]:
    """Open a Parquet file for writing; it is complete at the end of the block."""
    with pq.ParquetWriter(path, schema, compression="zstd") as writer, ThreadPoolExecutor(1, "row-groups") as pool:
        groups = RowGroups(writer, pool)
        yield groups
        groups.close()


def _characters(table: pa.Table) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """Return the bytes of text of each row, [rows]."""
    total = np.zeros(table.num_rows, dtype=np.int64)
    for column in table.columns:
        if pa.types.is_string(column.type):
            total += pc.binary_length(column).to_numpy()
    return total

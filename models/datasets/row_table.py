"""Rows of a split, accessed by their number, with few of them in memory, whatever the size of the split.

A small split is kept in memory. For a large one an Arrow file is stored next to the folder, in batches of a few rows;
the batches that were read last are kept in memory. The file is made when it is first needed, and again if the split has
changed.
"""

from __future__ import annotations

import hashlib
import json
import threading
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain, groupby
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from models.base.atomic_write import replace_file, write_file
from models.base.images import open_images
from models.datasets.placing import hashes_of
from models.datasets.schema import SYSTEM, Kind, Split, file_name, table_pieces

HELD_BYTES = 1 << 26
"""All rows of a split are kept in memory if they take at most this many bytes."""
BATCH_ROWS = 1024
BATCHES_HELD = 4
SEAL = ".json"
"""Suffix of the file that records the source and the hash of an Arrow file."""

Row = dict[str, Any]


class RowTable:
    """Rows by their number, from 0.

    Args:
        count: number of rows.
        read: number of a batch -> its BATCH_ROWS rows; the last may be shorter.
    """

    def __init__(self, count: int, read: Callable[[int], pa.RecordBatch]) -> None:
        self._count, self._read = count, read
        self._lately = lru_cache(maxsize=BATCHES_HELD)(read)

    def __len__(self) -> int:
        return self._count

    def __reduce__(self) -> tuple[type[RowTable], tuple[int, Callable[[int], pa.RecordBatch]]]:
        return RowTable, (self._count, self._read)

    def rows(self, numbers: Sequence[int]) -> list[Row]:
        """Return the rows with these numbers, in that order; neighbours are read together."""
        made: list[Row] = []
        for batch, some in groupby(numbers, lambda number: number // BATCH_ROWS):
            places = pa.array([number % BATCH_ROWS for number in some], pa.int32())
            made += self._lately(batch).take(places).to_pylist()
        return made

    def batches(self, *columns: str) -> Iterator[pa.RecordBatch]:
        """Yield all rows in order, a batch in memory at a time; only the `columns`, if any are given."""
        for number in range(-(-self._count // BATCH_ROWS)):
            batch = self._read(number)
            yield batch.select(list(columns)) if columns else batch

    @property
    def has_systems(self) -> bool:
        """Whether the rows have a column for system messages."""
        return bool(self._count) and SYSTEM in self._lately(0).schema.names

    def systems(self) -> Column | None:
        """Return the system message of each prompt, in batches; None if no row has one."""
        return self.column(SYSTEM) if self.has_systems else None

    def column(self, name: str) -> Column:
        """Return the values of a column, in batches."""
        return Column(self, name)


@dataclass(frozen=True)
class Column(Iterable[list[Any]]):
    """The values of a column in order, in batches; they can be iterated repeatedly."""

    table: RowTable
    name: str

    def __iter__(self) -> Iterator[list[Any]]:
        for batch in self.table.batches(self.name):
            yield batch.column(self.name).to_pylist()


@dataclass(frozen=True)
class Texts(Iterable[list[str]]):
    """Texts of the rows in order, in batches; they can be iterated repeatedly."""

    table: RowTable
    made: tuple[Callable[[Row], str | None], ...]
    """Functions from a row to its text, or None if it has none; each is applied to all rows before the next one."""

    def __iter__(self) -> Iterator[list[str]]:
        for make in self.made:
            for batch in self.table.batches():
                yield [text for row in batch.to_pylist() if (text := make(row)) is not None]


class Names:
    """Index of rows by the text of a column. Memory is 16 bytes a row."""

    def __init__(self, column: Column) -> None:
        hashes = np.concatenate([np.empty(0, np.uint64), *(hashes_of(map(str, some))[:, 0] for some in column)])
        self._column = column
        self._order = np.argsort(hashes, kind="stable")
        self._hashes = hashes[self._order]

    def rows(self, names: Sequence[str]) -> list[list[int]]:
        """Return the numbers of the rows with each name, ascending, [names] lists."""
        wanted = hashes_of(names)[:, 0]
        firsts, ends = (np.searchsorted(self._hashes, wanted, side) for side in ("left", "right"))
        return [self._so_called(*place) for place in zip(names, firsts.tolist(), ends.tolist(), strict=True)]

    def _so_called(self, name: str, first: int, end: int) -> list[int]:
        table, column = self._column.table, self._column.name
        alike: list[int] = self._order[first:end].tolist()
        return [row for row, held in zip(alike, table.rows(alike), strict=True) if str(held[column]) == name]


def open_rows(folder: Path, kind: Kind, split: Split) -> RowTable:
    """Open the rows of one kind and split of a prepared data set.

    Raises:
        UserError: for the reasons of `models.datasets.schema.read_table`; or the disk is full.
    """
    open_images(folder)
    file = folder.with_name(f".{folder.name}.rows") / f"{kind}_{split}.arrow"
    source = folder / file_name(kind, split)
    made_of = [source.stat().st_size, source.stat().st_mtime_ns] if source.is_file() else []
    if (kept := _kept(file, made_of)) is not None:
        return kept
    held: list[pa.RecordBatch] = []
    size = 0
    batches = _even(table_pieces(folder, kind, split))
    for batch in batches:
        held.append(batch)
        size += batch.nbytes
        if size > HELD_BYTES:
            break
    else:
        return _in_memory(held)
    try:
        write_file(file.with_name(".gitignore"), "*\n")
        with replace_file(file) as beside, pa.ipc.new_file(str(beside), held[0].schema) as writer:
            for batch in chain(held, batches):
                writer.write_batch(batch)
        write_file(file.with_suffix(SEAL), json.dumps([made_of, _sha256(file)]))
    except OSError as error:
        warnings.warn(f"{file}: cannot be written ({error.strerror}); the rows are held in memory", stacklevel=2)
        return _in_memory(list(_even(table_pieces(folder, kind, split))))
    kept = _kept(file, made_of)
    return _in_memory(list(_even(table_pieces(folder, kind, split)))) if kept is None else kept


def _even(pieces: Iterable[pa.Table]) -> Iterator[pa.RecordBatch]:
    """Yield the rows in batches of BATCH_ROWS each, except the last."""
    waiting: list[pa.Table] = []
    for piece in pieces:
        whole = pa.concat_tables([*waiting, piece])
        even = whole.num_rows // BATCH_ROWS * BATCH_ROWS
        yield from whole.slice(0, even).combine_chunks().to_batches(max_chunksize=BATCH_ROWS)
        waiting = [whole.slice(even)]
    for rest in waiting:
        yield from rest.combine_chunks().to_batches()


def _in_memory(batches: Sequence[pa.RecordBatch]) -> RowTable:
    return RowTable(sum(batch.num_rows for batch in batches), _Held(list(batches)))


class _Held:
    """Batches in memory."""

    def __init__(self, batches: list[pa.RecordBatch]) -> None:
        self._batches = batches

    def __call__(self, number: int) -> pa.RecordBatch:
        return self._batches[number]

    def __reduce__(self) -> tuple[Callable[[bytes], _Held], tuple[bytes]]:
        out = pa.BufferOutputStream()
        with pa.ipc.new_stream(out, self._batches[0].schema) as writer:
            for batch in self._batches:  # pickled alone, each batch would carry all of the shared memory
                writer.write_batch(batch)
        return _held, (out.getvalue().to_pybytes(),)


def _held(stream: bytes) -> _Held:
    return _Held(list(pa.ipc.open_stream(stream)))


class _InFile:
    """Batches of an Arrow file. Several threads may read it, and another process reopens it."""

    def __init__(self, file: Path) -> None:
        # read, not mapped: every accessed page of a mapped file counts as memory of this process
        self._file, self._reader, self._lock = file, pa.ipc.open_file(pa.OSFile(str(file))), threading.Lock()

    def __reduce__(self) -> tuple[type[_InFile], tuple[Path]]:
        return _InFile, (self._file,)

    def __call__(self, number: int) -> pa.RecordBatch:
        with self._lock:
            return self._reader.get_batch(number)

    @property
    def rows(self) -> int:
        """Number of rows."""
        last = self._reader.num_record_batches - 1
        return int(last * BATCH_ROWS + self(last).num_rows)


def _kept(file: Path, made_of: list[int]) -> RowTable | None:
    """Return the rows of a file if it was made from this source and is unchanged; None otherwise."""
    try:
        if json.loads(file.with_suffix(SEAL).read_bytes()) != [made_of, _sha256(file)]:
            return None
        kept = _InFile(file)
        return RowTable(kept.rows, kept)
    except (pa.ArrowException, OSError, ValueError):
        return None


def _sha256(file: Path) -> str:
    with file.open("rb") as handle:
        return hashlib.file_digest(handle, "sha256").hexdigest()

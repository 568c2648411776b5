"""Token ids of many texts, one row for each, which are read row by row and need not all be in memory.

On disk they are a safetensors file with all ids, concatenated, and the start of each text's ids. It is written and
checked piece by piece. In memory, each text takes 8 bytes for the start of its ids; the ids stay on disk.
"""

from __future__ import annotations

import hashlib
import json
import os
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, pairwise
from pathlib import Path
from typing import overload

import numpy as np
from numpy.typing import NDArray

from models.base.atomic_write import replace_file
from models.base.weights_header import read_header

HELD = 1 << 24
"""Tokens up to which rows are stored as Python numbers, which take less than a gibibyte then."""
OF_A_ROW = 32
"""Overhead of a row, in tokens."""
BLOCK_ROWS = 4096
"""Rows that are read together during iteration."""
HEADER = 512
"""Bytes before the ids; the header is padded with spaces, as the format allows."""
PIECE = 1 << 20

Ids = NDArray[np.int32]
Numbers = NDArray[np.int64]


class TokenRows(Sequence[list[int]]):
    """Sequence of the token ids of each text, [texts] lists, read on access.

    Args:
        starts: start of each text's ids among all ids, and the end of the last, [texts + 1].
        read: first place and end place (exclusive) -> the ids there.
        places: indices of the rows among these texts, [rows]; None: all.
    """

    def __init__(self, starts: Numbers, read: Callable[[int, int], Ids], places: Numbers | None = None) -> None:
        self._starts, self._read, self._places = starts, read, places

    def __len__(self) -> int:
        return len(self._starts) - 1 if self._places is None else len(self._places)

    @overload
    def __getitem__(self, at: int) -> list[int]: ...
    @overload
    def __getitem__(self, at: slice) -> TokenRows: ...
    def __getitem__(self, at: int | slice) -> list[int] | TokenRows:
        numbers = range(len(self))[at]
        if isinstance(numbers, range):
            return self.take(np.arange(numbers.start, numbers.stop, numbers.step))
        text = numbers if self._places is None else self._places[numbers]
        row: list[int] = self._read(int(self._starts[text]), int(self._starts[text + 1])).tolist()
        return row

    def __iter__(self) -> Iterator[list[int]]:
        if self._places is not None:
            yield from (self[number] for number in range(len(self)))
            return
        for first in range(0, len(self), BLOCK_ROWS):
            starts = self._starts[first : first + BLOCK_ROWS + 1].tolist()
            ids = self._read(starts[0], starts[-1]).tolist()
            yield from (ids[begin - starts[0] : end - starts[0]] for begin, end in pairwise(starts))

    @property
    def lengths(self) -> Numbers:
        """Number of tokens of each row, [rows]; reads no row."""
        every = np.diff(self._starts)
        return every if self._places is None else every[self._places]

    def take(self, places: Numbers) -> TokenRows:
        """Select the rows at `places`, in that order, without reading them."""
        return TokenRows(self._starts, self._read, places if self._places is None else self._places[places])

    def held(self) -> Sequence[list[int]]:
        """Return the rows as lists if they are few, otherwise unchanged."""
        return list(self) if few(len(self), int(self.lengths.sum())) else self


def few(rows: int, tokens: int) -> bool:
    """Return whether rows with `tokens` tokens in total are few enough to be stored as Python numbers."""
    return tokens + OF_A_ROW * rows <= HELD


def rows_in_memory(batches: Iterable[Sequence[Sequence[int]]]) -> TokenRows:
    """Store rows of ids, which come in batches, in memory with four bytes per token."""
    ids: list[Ids] = [np.empty(0, np.int32)]
    lengths: list[Numbers] = []
    for rows in batches:
        ids.append(_flat(rows))
        lengths.append(_lengths(rows))
    return TokenRows(_starts(lengths), _Held(np.concatenate(ids)))


def write_rows(file: Path, batches: Iterable[Sequence[Sequence[int]]]) -> None:
    """Write rows of ids, which come in batches, to `file`.

    Raises:
        OSError: it cannot be written.
        UserError: the disk is full.
    """
    total, lengths = hashlib.sha256(), list[Numbers]()
    with replace_file(file) as partial_file, partial_file.open("wb") as out:
        out.write(bytes(HEADER))
        for rows in batches:
            ids = _flat(rows).tobytes()
            out.write(ids)
            total.update(ids)
            lengths.append(_lengths(rows))
        starts = _starts(lengths)
        out.write(starts.tobytes())
        total.update(starts.tobytes())
        size = 4 * int(starts[-1])
        header = {
            "__metadata__": {"sha256": total.hexdigest()},
            "ids": {"dtype": "I32", "shape": [size // 4], "data_offsets": [0, size]},
            "starts": {"dtype": "I64", "shape": [len(starts)], "data_offsets": [size, size + starts.nbytes]},
        }
        out.seek(0)
        out.write((HEADER - 8).to_bytes(8, "little") + json.dumps(header).encode().ljust(HEADER - 8))


def open_rows(file: Path, count: int) -> TokenRows:
    """Open the rows that `write_rows` wrote; each is read on access, and the file may then be removed.

    Args:
        file: file from `write_rows`.
        count: required number of rows.

    Raises:
        UserError: the file has another format, or was cut short.
        OSError: it cannot be read.
        ValueError, KeyError: its content is different.
    """
    header, begin = read_header(file)
    kept = _Kept(file, begin + int(header["ids"]["data_offsets"][0]))
    total = hashlib.sha256()
    for name in ("ids", "starts"):
        first, end = header[name]["data_offsets"]
        for at in range(begin + first, begin + end, PIECE):
            total.update(kept.bytes(at, min(PIECE, begin + end - at)))
    if header.get("__metadata__", {}).get("sha256") != total.hexdigest():
        raise ValueError("its content is not what was written")
    first, end = header["starts"]["data_offsets"]
    starts = np.frombuffer(kept.bytes(begin + first, end - first), np.int64)
    if len(starts) != count + 1:
        raise ValueError(f"{len(starts) - 1} texts, not {count}")
    return TokenRows(starts, kept)


@dataclass(frozen=True)
class _Held:
    """Ids in memory."""

    ids: Ids

    def __call__(self, first: int, end: int) -> Ids:
        return self.ids[first:end]


class _Kept:
    """Ids in a file, from a place on.

    Several threads may read it, and another process opens the file again. It is closed when the last reference is
    released.
    """

    def __init__(self, file: Path, place: int) -> None:
        self._file, self._place = file, place
        self._handle = os.open(file, os.O_RDONLY)
        weakref.finalize(self, os.close, self._handle)

    def __reduce__(self) -> tuple[type[_Kept], tuple[Path, int]]:
        return _Kept, (self._file, self._place)

    def __call__(self, first: int, end: int) -> Ids:
        return np.frombuffer(self.bytes(self._place + 4 * first, 4 * (end - first)), np.int32)

    def bytes(self, first: int, count: int) -> bytes:
        """Return `count` bytes from a place on."""
        parts = []
        while count:
            part = os.pread(self._handle, count, first)
            if not part:
                raise ValueError("cut short")
            parts.append(part)
            first, count = first + len(part), count - len(part)
        return b"".join(parts)


def _flat(rows: Sequence[Sequence[int]]) -> Ids:
    return np.fromiter(chain.from_iterable(rows), dtype=np.int32, count=sum(map(len, rows)))


def _lengths(rows: Sequence[Sequence[int]]) -> Numbers:
    return np.fromiter(map(len, rows), dtype=np.int64, count=len(rows))


def _starts(lengths: Sequence[Numbers]) -> Numbers:
    starts: Numbers = np.cumsum(np.concatenate([np.zeros(1, np.int64), *lengths]))
    return starts

"""Rows with one prompt, read together wherever they are in the files, for formats that compare their completions.

The files are read twice: first for a hash of each row's prompt, 16 bytes a row, then for the rows. A row waits in
memory until the last row with its prompt has been read, so files in which these are neighbours need no memory.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from models.base.errors import UserError
from models.datasets.formats import FORMATS, SPLIT_IF_NAMED
from models.datasets.messages import SYSTEM
from models.datasets.placing import Numbers, hashes_of, same_prompts
from models.datasets.raw import BATCH_CHARACTERS, RawBatch, RawRow, read_batches
from models.datasets.sources import Source

GROUP_ROWS = 4096
"""A batch of groups ends when it has this many rows."""


def batches_of(source: Source, limit: int | None) -> Iterator[RawBatch]:
    """Yield the rows of a source in batches; rows with one prompt as one row with `others`, if its format asks for it.

    The order is that of the last row of each prompt. An error in a file is yielded as a batch in its place.

    Args:
        source: the source.
        limit: largest number of rows to read.

    Raises:
        UserError: the files have no rows at all.
    """
    shape = FORMATS[source.format].candidates
    if shape is None or not shape.grouped:
        yield from read_batches(source.files, limit)
        return
    try:
        numbers = _numbers(source, limit)
    except UserError as error:
        yield RawBatch(source.files[0], broken=error)
        return
    yield from _groups(read_batches(source.files, limit), numbers)


def _numbers(source: Source, limit: int | None) -> Numbers:
    """Return a number for each row, the same for rows that are read together."""
    key = _key_of(source)
    hashes = [hashes_of(map(key, batch.rows())) for batch in read_batches(source.files, limit)]
    return same_prompts(np.concatenate(hashes))


def _key_of(source: Source) -> Callable[[RawRow], str]:
    """Return a function from a row to the text by which rows are read together: prompt, system message and split."""
    defaults = FORMATS[source.format].columns
    prompt = source.mapping.get("prompt", defaults["prompt"]).strip()
    further = [source.mapping.get(SYSTEM, SYSTEM).strip()]
    if source.split_named:
        further.append(source.mapping.get(SPLIT_IF_NAMED, SPLIT_IF_NAMED).strip())

    def key(raw: RawRow) -> str:
        if prompt not in raw.values:
            return f"{raw.file} {raw.number}"
        return json.dumps([raw.values.get(column) for column in (prompt, *further)], default=str)

    return key


def _groups(batches: Iterator[RawBatch], numbers: Numbers) -> Iterator[RawBatch]:
    left = np.bincount(numbers)
    waiting: dict[int, list[RawRow]] = {}
    complete: list[RawRow] = []
    rows = characters = at = 0
    for batch in batches:
        for raw in batch.rows():
            number = int(numbers[at])
            at += 1
            left[number] -= 1
            group = waiting.setdefault(number, [])
            group.append(RawRow(raw.file, raw.number, dict(raw.values)))  # not a view of its whole batch
            if left[number]:
                continue
            first, *others = waiting.pop(number)
            complete.append(replace(first, others=tuple(others)))
            rows += len(group)
            characters += sum(len(str(value)) for row in group for value in row.values.values())
            if rows >= GROUP_ROWS or characters >= BATCH_CHARACTERS:
                yield _batch(complete)
                complete, rows, characters = [], 0, 0
    if complete:
        yield _batch(complete)


def _batch(rows: Sequence[RawRow]) -> RawBatch:
    return RawBatch(rows[0].file, [row.number for row in rows], list(rows), _as_it_is)


def _as_it_is(file: Path, number: int, row: RawRow) -> RawRow:
    return row

"""Conversion of raw rows into shards: Arrow files of a few thousand rows that hold each kind's columns, without ids.

The id of a row, and whether its prompt is in a later split too, depend on the whole data; everything that depends on a
row alone is decided here, by as many processes as there are cores. An existing shard is not made again: a preparation
that was killed resumes after its last shard.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, field
from itertools import chain, islice
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from models.base.atomic_write import replace_file
from models.base.errors import UserError
from models.datasets.formats import HELD_OUT, SPLIT_IF_NAMED, GivenSplit, columns_of, convert_rows, unrecognised
from models.datasets.image_columns import IMAGE_COLUMNS
from models.datasets.image_table import write_shard_images
from models.datasets.normalise import normalise
from models.datasets.placing import hashes_of
from models.datasets.prompt_groups import batches_of
from models.datasets.raw import RawBatch, RawRow
from models.datasets.schema import IDS, KINDS, SPLITS, SYSTEM, Kind, Split, arrow_schema
from models.datasets.settings import DataSettings
from models.datasets.sources import Source
from models.datasets.splits import divide_held_out, split_of

ALONE = 2
"""Largest number of batches that are converted without other processes, which take a second to start."""
SPLIT, PROMPT, ALIKE = "split", ("prompt_high", "prompt_low"), ("alike_high", "alike_low")
"""Columns of a shard in addition to those of its kinds."""
HAS = "has_"
"""Beginning of the name of a column that states which rows have a row of a kind; only if some have none."""
FACTS = b"rewardflow"
"""Metadata key of a shard's schema for the facts about its rows."""
Item = TypeVar("Item")
Result = TypeVar("Result")


class ReaderEnded(UserError):
    """A process that reads rows was ended from outside."""


@dataclass(frozen=True)
class Reading:
    """Parameters for reading the rows of a source."""

    source: Source
    columns: Mapping[str, str]
    """Field -> column."""
    settings: DataSettings


@dataclass(frozen=True)
class Shard:
    """Facts about a shard that are needed to process the whole data."""

    file: Path
    prompts: NDArray[np.uint64]
    """128-bit hashes of the exact text of the prompts, [rows, 2]."""
    alike: NDArray[np.uint64]
    """128-bit hashes of the normalised prompts, [rows, 2]."""
    splits: NDArray[np.int8]
    """Split of each row on its own, as an index in SPLITS, [rows]."""
    columns: frozenset[str]
    """Columns of its raw rows."""
    recognised: bool
    """Whether any row has the format's shape."""
    split_given: bool
    """Whether any row gives its split."""
    unread: frozenset[str]
    """Columns of its raw rows, and keys of their messages, that are not read."""
    has: Mapping[Kind, NDArray[np.bool_]] = field(default_factory=dict)
    """Whether each row has a row of a kind, [rows]; a kind that is left out is in all of them."""
    unused: int = 0
    """Number of completions that are in no row, see `models.datasets.candidates`."""


def shards_of(source: Source, settings: DataSettings, folder: Path, *, report: Callable[[int], None]) -> list[Shard]:
    """Convert a source into shards, in order, with their files in `folder`.

    Columns that only some rows have count for all of them, so the columns of the first batch are a guess. If the other
    rows have more columns, or an error occurs, all rows are scanned for their columns first and then read.

    Args:
        source: source to read.
        settings: settings of the data.
        folder: folder of the shards; it is created.
        report: called with the number of rows of each shard.

    Raises:
        UserError: a file cannot be read, has no rows, or is not of the format; a row's value is wrong.
    """

    def batches() -> Iterator[RawBatch]:
        return batches_of(source, settings.limit)

    def read(columns: Mapping[str, str], into: str, rows: Iterator[RawBatch]) -> list[Shard]:
        reading = Reading(source, columns, settings)
        made = []
        (folder / into).mkdir(parents=True, exist_ok=True)
        for shard in in_order(_Convert(reading, folder / into), enumerate(rows)):
            report(len(shard.splits))
            made.append(shard)
        return made

    try:
        rest = batches()
        begin = next(rest)
        first, present = columns_in(begin)
        guess = columns_read(source, first, present)
        shards = read(guess, "guessed", chain([begin], rest))
        if columns_read(source, first, frozenset().union(*(shard.columns for shard in shards))) == guess:
            return _recognised(source, shards)
    except ReaderEnded:
        raise
    except UserError:
        pass  # the first error in the files is reported first, and columns are known before rows are checked
    looked = list(in_order(columns_in, batches()))
    columns = columns_read(source, looked[0][0], frozenset().union(*(present for _, present in looked)))
    return _recognised(source, read(columns, "read", batches()))


def columns_in(batch: RawBatch) -> tuple[RawRow, frozenset[str]]:
    """Return the first row of a batch, and the columns that any of its rows has."""
    rows = batch.rows()
    first = next(rows)
    present = first.columns
    for row in rows:
        present.update(row.values if not row.others else row.columns)
    return first, frozenset(present)


def in_order(make: Callable[[Item], Result], items: Iterable[Item]) -> Iterator[Result]:
    """Yield `make` of each item, in order; made in parallel if there are more than a few items.

    Raises:
        ReaderEnded: a process was ended from outside. Errors of `make` are raised too, for the first item that fails.
    """
    items = iter(items)
    ahead = list(islice(items, ALONE + 1))
    if len(ahead) <= ALONE:
        yield from map(make, ahead)
        return
    workers = len(os.sched_getaffinity(0))
    waiting: deque[Future[Result]] = deque()
    context = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(workers, mp_context=context, initializer=_end_with_parent)
    try:
        for item in chain(ahead, items):
            waiting.append(pool.submit(make, item))
            if len(waiting) > 2 * workers:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    except BrokenProcessPool as error:
        raise ReaderEnded("prepare: a process that reads rows was ended from outside; is memory short?") from error
    finally:
        pool.shutdown(cancel_futures=True)


def _end_with_parent() -> None:
    """End this process when its parent has ended, killed or not; otherwise it would wait for work for ever."""
    parent = multiprocessing.parent_process()
    assert parent is not None, "a process of a pool has a parent"

    def follow() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=follow, daemon=True).start()


@dataclass(frozen=True)
class _Convert:
    """Conversion of a batch into a shard."""

    reading: Reading
    folder: Path

    def __call__(self, numbered: tuple[int, RawBatch]) -> Shard:
        number, batch = numbered
        file = self.folder / f"{number:06d}.arrow"
        if not file.is_file():
            self._write(file, batch)
        return _read_shard(file)

    def _write(self, file: Path, batch: RawBatch) -> None:
        reading = self.reading
        present: set[str] = set()
        ignored = frozenset(reading.settings.ignore)
        records, given = [], []
        for raw in batch.rows():
            present.update(raw.values if not raw.others else raw.columns)
            for record in convert_rows(reading.source.format, reading.columns, raw, ignored):
                records.append(record)
                given.append(reading.source.split_of(record.split, raw.place))
        prompts = [str(next(iter(record.rows.values()))["prompt"]) for record in records]
        alike = [normalise(prompt) for prompt in prompts]
        splits = [self._split(split, prompt) for split, prompt in zip(given, alike, strict=True)]
        arrays: dict[str, pa.Array] = {SPLIT: pa.array(map(SPLITS.index, splits), pa.int8())}
        for names, hashes in ((PROMPT, hashes_of(prompts)), (ALIKE, hashes_of(alike))):
            arrays |= {name: pa.array(hashes[:, at]) for at, name in enumerate(names)}
        for kind in reading.source.kinds:
            has = [kind in record.rows for record in records]
            if not all(has):
                arrays[f"{HAS}{kind}"] = pa.array(has)
            rows = [record.rows.get(kind, {}) for record in records]
            for column in arrow_schema(kind, system=any(row.get(SYSTEM) for row in rows)):
                if column.name not in IDS:
                    unknown: Any = 0 if column.name == "level" else ""
                    if any(column.name in row for row in rows):
                        values = [row.get(column.name, unknown) for row in rows]
                        arrays[f"{kind}.{column.name}"] = pa.array(values, column.type)
                    else:
                        arrays[f"{kind}.{column.name}"] = pa.repeat(pa.scalar(unknown, column.type), len(rows))
        facts = {
            "columns": sorted(present),
            "recognised": any(record.recognised for record in records),
            "split_given": any(record.split for record in records),
            "unread": sorted(
                (present - {*reading.columns.values(), *IMAGE_COLUMNS}).union(*(record.unread for record in records))
                - ignored
            ),
            "unused": sum(record.unused for record in records),
        }
        table = pa.table(arrays).replace_schema_metadata({FACTS: json.dumps(facts).encode()})
        write_shard_images(file, prompts)
        packed = pa.ipc.IpcWriteOptions(compression="zstd")
        with replace_file(file) as beside, pa.ipc.new_file(str(beside), table.schema, options=packed) as writer:
            writer.write_table(table)

    def _split(self, given: GivenSplit, prompt: str) -> Split:
        if given == HELD_OUT:
            return divide_held_out(prompt, self.reading.settings)
        return given or split_of(prompt, self.reading.settings)


def read_kind(shard: Path, kind: Kind) -> pa.Table:
    """Read the columns of a kind in a shard, without ids, [rows]."""
    mark = f"{kind}."
    with pa.memory_map(str(shard)) as source:
        names = pa.ipc.open_file(source).schema.names
        wanted = [at for at, name in enumerate(names) if name.startswith(mark)]
        table = pa.ipc.open_file(source, options=pa.ipc.IpcReadOptions(included_fields=wanted)).read_all()
    return table.rename_columns([name.removeprefix(mark) for name in table.column_names])


def has_system(shard: Path, kind: Kind) -> bool:
    """Return whether any row of a kind in a shard has a system message."""
    with pa.memory_map(str(shard)) as source:
        return f"{kind}.{SYSTEM}" in pa.ipc.open_file(source).schema.names


def _read_shard(file: Path) -> Shard:
    with pa.memory_map(str(file)) as source:
        schema = pa.ipc.open_file(source).schema
        partly = [name for name in schema.names if name.startswith(HAS)]
        wanted = [schema.get_field_index(name) for name in (SPLIT, *PROMPT, *ALIKE, *partly)]
        table = pa.ipc.open_file(source, options=pa.ipc.IpcReadOptions(included_fields=wanted)).read_all()
        facts = json.loads(schema.metadata[FACTS])
        prompts, alike = (np.stack([table[name].to_numpy() for name in names], axis=1) for names in (PROMPT, ALIKE))
        splits = table[SPLIT].to_numpy()
        has = {kind: table[f"{HAS}{kind}"].to_numpy() for kind in KINDS if f"{HAS}{kind}" in partly}
    columns, unread = frozenset(facts["columns"]), frozenset(facts["unread"])
    recognised, given, unused = facts["recognised"], facts["split_given"], facts["unused"]
    return Shard(file, prompts, alike, splits, columns, recognised, given, unread, has, unused)


def columns_read(source: Source, first: RawRow, present: frozenset[str]) -> dict[str, str]:
    """Return field -> column of a source, from its first row and the columns that any of its rows has."""
    columns = columns_of(source.format, source.mapping, first, present)
    if not source.split_named:
        columns.pop(SPLIT_IF_NAMED, None)
    return columns


def _recognised(source: Source, shards: list[Shard]) -> list[Shard]:
    if not any(shard.recognised for shard in shards):
        raise unrecognised(source.format, source.files[0])
    return shards

"""A plain reader of raw files. It keeps all rows in memory and compares them with the shards that the project makes."""

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from models.datasets.formats import SPLIT_IF_NAMED, GivenSplit, columns_of, convert_row, unrecognised
from models.datasets.raw import RawRow, read_batches
from models.datasets.schema import COLUMNS, IDS, SYSTEM, Kind, Row
from models.datasets.settings import DataSettings
from models.datasets.shards import read_kind, shards_of
from models.datasets.sources import sources_of


@dataclass(frozen=True)
class PlainRecord:
    """A row of one kind."""

    kind: Kind
    split: GivenSplit
    row: Row


def read_rows(files: Sequence[Path], limit: int | None = None) -> list[RawRow]:
    """Return all rows of some files."""
    return [row for batch in read_batches(files, limit) for row in batch.rows()]


def read_records(
    name: str, paths: Sequence[Path], mapping: Mapping[str, str], limit: int | None = None
) -> tuple[list[PlainRecord], list[Path]]:
    """Return the records of the files that the paths name, and these files. Check that their shards are equal.

    Raises:
        UserError: the files cannot be converted; the error of the code that makes the shards.
    """
    settings = DataSettings.model_validate(
        {"name": "x", "format": name, "path": tuple(paths), "columns": dict(mapping), "limit": limit}
    )
    sources = sources_of(settings)
    files = [file for source in sources for file in source.files]
    records: list[PlainRecord] = []
    for source in sources:
        with tempfile.TemporaryDirectory() as folder:
            shards = shards_of(source, settings, Path(folder), report=lambda rows: None)
            held = {
                kind: [{SYSTEM: "", **row} for shard in shards for row in read_kind(shard.file, kind).to_pylist()]
                for kind in source.kinds
            }
        rows = read_rows(source.files, limit)
        columns = columns_of(source.format, source.mapping, rows[0], {column for row in rows for column in row.values})
        if not source.split_named:
            columns.pop(SPLIT_IF_NAMED, None)
        converted = [convert_row(source.format, columns, raw) for raw in rows]
        if not any(record.recognised for record in converted):
            raise unrecognised(source.format, rows[0].file)
        for kind in source.kinds:
            own = [*(column for column in COLUMNS[kind] if column not in IDS), SYSTEM]
            by_definition = [
                {name: record.rows[kind].get(name, 0 if name == "level" else "") for name in own}
                for record in converted
            ]
            assert held[kind] == by_definition
        records += [
            PlainRecord(kind, record.split, {**record.rows[kind]}) for record in converted for kind in source.kinds
        ]
    return records, files

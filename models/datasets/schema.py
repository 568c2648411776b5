"""The prepared form of every data set: one Parquet file for each kind and split, and a manifest.

    data/prepared/NAME/{problems,demonstrations,preferences}_{train,validation,gate}.parquet
    data/prepared/NAME/manifest.json

`validation` is for inspection and for choices by the user; `gate` has only problems, which are used for the promotion
decision and nothing else. A kind that a data set lacks has no files. No value is null: "" is an unknown text, 0 an
unknown level. The bytes depend on the rows alone, so the hash of a file is the version of its rows.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

import pyarrow as pa
import pyarrow.parquet as pq

from models.base.atomic_write import replace_file
from models.base.errors import UserError
from models.base.images import open_images

if TYPE_CHECKING:
    import pandas

Kind = Literal["problems", "demonstrations", "preferences"]
Split = Literal["train", "validation", "gate"]
Row = dict[str, str | int]

KINDS: tuple[Kind, ...] = get_args(Kind)
SPLITS: tuple[Split, ...] = get_args(Split)
MANIFEST = "manifest.json"
TURNS = "\u241e"
"""Separates the turns of a demonstration."""
SOUND = "none"
"""Value of the column `flaw` for a demonstration without a flaw."""
PIECE_ROWS = 1 << 14
"""Rows of a file that are in memory together when it is read in pieces."""

COLUMNS: dict[Kind, tuple[str, ...]] = {
    "problems": ("id", "prompt", "answer", "level", "tests", "entry_point"),
    "demonstrations": ("id", "prompt_id", "prompt", "completion", "answer", "level", "flaw"),
    "preferences": ("id", "prompt_id", "prompt", "chosen", "rejected", "level", "flaw"),
}
"""Columns of each kind, in the order of the file. All are text except `level`, a whole number."""
SYSTEM = "system"
"""Column of the system message at the beginning of a prompt, where a blank line follows it; "" if there is none. A file
has the column if any of its rows has a system message."""
IDS = ("id", "prompt_id")
"""Columns that depend on the whole data set, and not on the row alone."""


def arrow_schema(kind: Kind, *, system: bool = False) -> pa.Schema:
    """Return the Arrow schema of a kind: int64 for `level`, string for the rest, nothing nullable.

    Args:
        kind: kind of the rows.
        system: whether to include the column `SYSTEM`.
    """
    types = {"level": pa.int64()}
    columns = (*COLUMNS[kind], SYSTEM) if system else COLUMNS[kind]
    return pa.schema([pa.field(column, types.get(column, pa.string()), nullable=False) for column in columns])


def file_name(kind: Kind, split: Split) -> str:
    """Return the name of the file that holds one kind and split, such as `problems_train.parquet`."""
    return f"{kind}_{split}.parquet"


def write_rows(path: Path, rows: Iterable[Mapping[str, Any]], schema: pa.Schema) -> None:
    """Write rows as Parquet; a reader sees either the complete new file or the previous one."""
    table = pa.Table.from_pylist(list(rows), schema=schema)
    with replace_file(path) as beside:
        pq.write_table(table, beside, compression="zstd")


def open_parquet(path: Path) -> pq.ParquetFile:
    """Open a Parquet file without reading its rows.

    Raises:
        UserError: the file is missing or is not readable Parquet; the message names it.
    """
    if not path.is_file():
        raise UserError(f"{path}: no such file")
    try:
        return pq.ParquetFile(path)
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:  # a column name that is not text
        raise unreadable_parquet(path, error) from error


def unreadable_parquet(path: Path, error: Exception) -> UserError:
    """Return the error for a file that is not Parquet, or is broken."""
    reason = (str(error).strip().splitlines() or ["unknown reason"])[0]
    return UserError(f"{path}: not a readable Parquet file ({reason})")


def read_table(folder: Path, kind: Kind, split: Split) -> pa.Table:
    """Read the rows of one kind and split of a prepared data set, with the columns of `COLUMNS`, and `SYSTEM` if any.

    Raises:
        UserError: the data set lacks the kind or split, the file is corrupt or empty, or a column is not there.
    """
    return pa.concat_tables(table_pieces(folder, kind, split))


def table_pieces(folder: Path, kind: Kind, split: Split) -> Iterator[pa.Table]:
    """Yield the same rows as `read_table` in pieces of at most PIECE_ROWS, one in memory at a time; same errors.

    The images of the data set, if it has any, are known to this process from then on.
    """
    open_images(folder)
    path = folder / file_name(kind, split)
    if not path.is_file():
        have = ", ".join(sorted(file.name for file in folder.glob("*.parquet"))) or "nothing"
        raise UserError(f"{path}: the data set has no {kind} for {split} (it has {have})")
    source = open_parquet(path)
    for column in COLUMNS[kind]:
        if column not in source.schema_arrow.names:
            raise UserError(f"{path}: no column '{column}' (it has {', '.join(source.schema_arrow.names)})")
    if source.metadata.num_rows == 0:
        raise UserError(f"{path}: the {split} split of {kind} is empty")
    schema = arrow_schema(kind, system=SYSTEM in source.schema_arrow.names)
    batches = source.iter_batches(PIECE_ROWS, columns=schema.names)
    while True:
        try:
            piece = pa.Table.from_batches([next(batches)])
        except StopIteration:
            return
        except (pa.ArrowException, OSError) as error:
            raise unreadable_parquet(path, error) from error
        try:
            piece = piece.select(schema.names).cast(schema)
        except (pa.ArrowException, ValueError) as error:
            raise UserError(f"{path}: a column is not of the type that {kind} ask for ({error})") from error
        yield piece


def read_rows(folder: Path, kind: Kind, split: Split) -> list[dict[str, Any]]:
    """Return the same rows as `read_table`, each a dictionary; raises the same errors."""
    rows: list[dict[str, Any]] = read_table(folder, kind, split).to_pylist()
    return rows


def read_frame(folder: Path, kind: Kind, split: Split) -> pandas.DataFrame:
    """Return the same rows as `read_table`, as a pandas frame; raises the same errors."""
    frame: pandas.DataFrame = read_table(folder, kind, split).to_pandas()
    return frame


def available(folder: Path) -> dict[Kind, tuple[Split, ...]]:
    """Return the splits that a prepared data set has of each kind; a kind without any is left out."""
    splits_of: dict[Kind, tuple[Split, ...]] = {}
    for kind in KINDS:
        splits = tuple(split for split in SPLITS if (folder / file_name(kind, split)).is_file())
        if splits:
            splits_of[kind] = splits
    return splits_of


def read_manifest(folder: Path) -> dict[str, Any]:
    """Read `manifest.json`: name, format, rows of each file, sha256 of each source, rows dropped.

    Raises:
        UserError: the manifest is missing (the data set is not complete) or is not valid JSON.
    """
    path = folder / MANIFEST
    try:
        manifest: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise UserError(f"{path}: no such file; prepare the data set first") from None
    except ValueError as error:
        raise UserError(f"{path}: not valid JSON ({error})") from error
    return manifest

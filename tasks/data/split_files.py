"""The files of a prepared data set, as the validation reads them: one for each kind and split, in pieces of rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from models.base.errors import UserError
from models.base.images import IMAGES
from models.datasets.schema import (
    COLUMNS,
    SYSTEM,
    Kind,
    Split,
    arrow_schema,
    available,
    file_name,
    open_parquet,
    unreadable_parquet,
)

PIECE_ROWS = 1 << 16
"""Number of rows of a piece: these are checked together."""


@dataclass(frozen=True)
class SplitFile:
    """A file of a prepared data set, which holds one split of one kind of rows."""

    path: Path
    kind: Kind
    split: Split
    rows: int
    schema: pa.Schema

    @property
    def name(self) -> str:
        """Its name, without the folder."""
        return self.path.name

    @property
    def has_images(self) -> bool:
        """Whether its prompts may refer to images: the data set has a table of them."""
        return (self.path.parent / IMAGES).is_file()

    def pieces(self, columns: Sequence[str] | None = None) -> Iterator[tuple[int, pa.Table]]:
        """Yield position of the first row and rows of each piece, in order; nothing is cast, nulls are kept.

        Args:
            columns: the columns to read; None: all of its kind, and its system messages if it has any.

        Raises:
            UserError: the file cannot be read.
        """
        start, wanted = 0, list(columns or self.schema.names)
        try:
            for batch in pq.ParquetFile(self.path).iter_batches(PIECE_ROWS, columns=wanted):
                table = pa.Table.from_batches([batch]).select(wanted)
                yield start, table
                start += table.num_rows
        except (pa.ArrowException, OSError) as error:
            raise unreadable_parquet(self.path, error) from error


def sources_of(folder: Path) -> list[SplitFile]:
    """Return the files of a prepared data set, or raise one error that names every file without readable rows."""
    sources: list[SplitFile] = []
    faults: list[str] = []
    for kind, splits in available(folder).items():
        for split in splits:
            try:
                sources.append(_source(folder / file_name(kind, split), kind, split))
            except UserError as error:
                faults.append(str(error))
    if faults:
        raise UserError(*faults)
    if not sources:
        raise UserError(f"{folder}: no prepared data: files have names such as problems_train.parquet")
    return sources


def _source(path: Path, kind: Kind, split: Split) -> SplitFile:
    """Open a file and check its columns. Columns that are neither text nor numbers are refused here."""
    parquet = open_parquet(path)
    schema, wished = parquet.schema_arrow, arrow_schema(kind, system=SYSTEM in parquet.schema_arrow.names)
    for column in COLUMNS[kind]:
        if column not in schema.names:
            raise UserError(f"{path}: no column '{column}' (it has {', '.join(schema.names)})")
    if parquet.metadata.num_rows == 0:
        raise UserError(f"{path}: the {split} split of {kind} is empty")
    for wanted in wished:
        given = schema.field(wanted.name).type
        fits = (
            pa.types.is_integer(given)
            if pa.types.is_integer(wanted.type)
            else given in (pa.string(), pa.large_string())
        )
        if not fits:
            raise UserError(f"{path}: column '{wanted.name}' holds {given}, not {wanted.type}")
    return SplitFile(path, kind, split, parquet.metadata.num_rows, wished)

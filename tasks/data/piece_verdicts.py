"""Stored results of the checks of each piece of a file, so that a killed validation continues after the last piece.

A piece is a number of consecutive rows. Its result is one Arrow file, written atomically: the outcome of each check on
its rows, and the columns that the checks of the whole file will need. The caller ensures that nothing the results
depend on changes while they are stored: data, suites, settings, and the tokenizer that counts lengths.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import pandas as pd
import pyarrow as pa

from models.base.atomic_write import replace_file
from tasks.data.expectations import CheckOutcome, Failing

METADATA_KEY = b"rewardflow"
"""Key in a file's schema metadata for data that is not a column."""


@dataclass(frozen=True)
class PieceVerdict:
    """Result of the checks on a piece."""

    names: list[str]
    """Columns of its rows, including the computed ones."""
    outcomes: Sequence[CheckOutcome]
    """Outcome of each check that looks at rows alone, [checks]."""
    columns: pd.DataFrame
    """Columns that other checks need, [rows, some]."""


@dataclass(frozen=True)
class PieceVerdicts:
    """The store of a validation's results, in `folder`; None: nothing is stored."""

    folder: Path | None

    def read(self, source: str, number: int) -> PieceVerdict | None:
        """Return the stored result of a piece of a file; None if there is none or it cannot be read."""
        file = self._file(source, number)
        if file is None or not file.is_file():
            return None
        try:
            with pa.memory_map(str(file)) as mapped:
                table = pa.ipc.open_file(mapped).read_all()
            content = json.loads(table.schema.metadata[METADATA_KEY])
            return PieceVerdict(
                content["names"], [_outcome(**outcome) for outcome in content["outcomes"]], table.to_pandas()
            )
        except (pa.ArrowException, OSError, ValueError, KeyError, TypeError):
            return None  # the piece is checked again

    def write(self, source: str, number: int, verdict: PieceVerdict) -> None:
        """Store the result of a piece, unless its columns would not be read back unchanged."""
        file = self._file(source, number)
        if file is None:
            return
        content = {"names": verdict.names, "outcomes": [asdict(outcome) for outcome in verdict.outcomes]}
        try:
            table = pa.Table.from_pandas(verdict.columns.reset_index(drop=True))
        except pa.ArrowException:
            return
        if not _same(table.to_pandas(), verdict.columns):
            return
        metadata = {**(table.schema.metadata or {}), METADATA_KEY: json.dumps(content).encode()}
        table = table.replace_schema_metadata(metadata)
        with replace_file(file) as partial_file, pa.ipc.new_file(str(partial_file), table.schema) as writer:
            writer.write_table(table)

    def _file(self, source: str, number: int) -> Path | None:
        return None if self.folder is None else self.folder / f"{source}.{number:06d}.arrow"


def _outcome(held: bool, failing: Sequence[dict[str, object]], observed: str) -> CheckOutcome:
    return CheckOutcome(held, tuple(Failing(**row) for row in failing), observed)  # type: ignore[arg-type]


def _same(stored: pd.DataFrame, columns: pd.DataFrame) -> bool:
    whole = columns.reset_index(drop=True)
    return bool(stored.dtypes.equals(whole.dtypes)) and bool(stored.equals(whole))

"""What the checks said of the pieces of a file, kept so that a validation that was killed goes on behind the last one.

A piece is one Arrow file, whole or not there: what each check said of its rows, and the columns of it that the checks
of the file as a whole will ask for. Who keeps them sees to it that nothing they depend on changes while they are kept:
data, suites, settings, the tokens that lengths are counted in.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import pandas as pd
import pyarrow as pa

from models.atomic_write import replace_file
from tasks.data.expectations import Failing, Outcome

SAID = b"rewardflow"
"""Where a file's schema says what is no column."""


@dataclass(frozen=True)
class Verdict:
    """What is known of a piece when it has been looked at."""

    names: list[str]
    """Columns that its rows had, the computed ones too."""
    outcomes: Sequence[Outcome]
    """What each check that looks at rows alone said, [checks]."""
    columns: pd.DataFrame
    """Those that other checks need, [rows, some]."""


@dataclass(frozen=True)
class PieceVerdicts:
    """The verdicts of a validation; `folder` None: none are kept."""

    folder: Path | None

    def read(self, source: str, number: int) -> Verdict | None:
        """The verdict of a piece of a file; None where there is none yet."""
        file = self._file(source, number)
        if file is None or not file.is_file():
            return None
        try:
            with pa.memory_map(str(file)) as mapped:
                table = pa.ipc.open_file(mapped).read_all()
            said = json.loads(table.schema.metadata[SAID])
            return Verdict(said["names"], [_outcome(**outcome) for outcome in said["outcomes"]], table.to_pandas())
        except (pa.ArrowException, OSError, ValueError, KeyError, TypeError):
            return None  # the piece is looked at again

    def write(self, source: str, number: int, verdict: Verdict) -> None:
        """Keep the verdict of a piece, where its columns come back as they are."""
        file = self._file(source, number)
        if file is None:
            return
        said = {"names": verdict.names, "outcomes": [asdict(outcome) for outcome in verdict.outcomes]}
        try:
            table = pa.Table.from_pandas(verdict.columns.reset_index(drop=True))
        except pa.ArrowException:
            return
        if not _same(table.to_pandas(), verdict.columns):
            return
        metadata = {**(table.schema.metadata or {}), SAID: json.dumps(said).encode()}
        table = table.replace_schema_metadata(metadata)
        with replace_file(file) as beside, pa.ipc.new_file(str(beside), table.schema) as writer:
            writer.write_table(table)

    def _file(self, source: str, number: int) -> Path | None:
        return None if self.folder is None else self.folder / f"{source}.{number:06d}.arrow"


def _outcome(held: bool, failing: Sequence[dict[str, object]], observed: str) -> Outcome:
    return Outcome(held, tuple(Failing(**row) for row in failing), observed)  # type: ignore[arg-type]


def _same(made: pd.DataFrame, columns: pd.DataFrame) -> bool:
    whole = columns.reset_index(drop=True)
    return bool(made.dtypes.equals(whole.dtypes)) and bool(made.equals(whole))

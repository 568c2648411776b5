"""Rows that failed a check: set aside with the reason, counted, and past a share of their file a stop.

Pure decisions about failures that somebody else found; the only thing written is told by its function's name.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import pandas as pd

COLUMNS = ("file", "id", "column", "reason", "row")
"""Columns of the quarantine file, all text; `row` is the whole row as JSON."""


@dataclass(frozen=True, order=True)
class Failure:
    """One row that failed one critical check."""

    file: str
    """Name of the file that the row stands in."""
    row: int
    """Position in the file, from 0."""
    column: str
    reason: str


def quarantined_rows(failures: Sequence[Failure], frames: Mapping[str, pd.DataFrame]) -> pd.DataFrame:
    """The quarantine as a table, [failures, COLUMNS]: a row that failed three checks stands in it three times.

    Args:
        failures: what failed, in the order of the table.
        frames: the rows of each file as they were read, by file name.
    """
    positions = {(failure.file, failure.row) for failure in failures}
    rows = {
        (file, row): {name: _plain(value) for name, value in frames[file].iloc[row].items()} for file, row in positions
    }
    table = [
        (
            failure.file,
            row_name(frames[failure.file], failure.row),
            failure.column,
            failure.reason,
            json.dumps(rows[failure.file, failure.row], ensure_ascii=False),
        )
        for failure in failures
    ]
    return pd.DataFrame(table, columns=list(COLUMNS), dtype="str")


def sound_rows(frame: pd.DataFrame, file: str, failures: Iterable[Failure]) -> pd.DataFrame:
    """The rows of a file that failed nothing, in their order."""
    failed = {failure.row for failure in failures if failure.file == file}
    return frame[[position not in failed for position in range(len(frame))]].reset_index(drop=True)


def counts_by_reason(failures: Iterable[Failure]) -> dict[str, int]:
    """How often each reason was given, most frequent first, equal ones by name."""
    counts = Counter(failure.reason for failure in failures)
    return dict(sorted(counts.items(), key=lambda item: (-item[1], item[0])))


def why_stop(failures: Sequence[Failure], frames: Mapping[str, pd.DataFrame], share: float) -> list[str]:
    """A sentence about every file that has too many failing rows: its column, the count and three rows.

    Args:
        failures: what failed.
        frames: the rows of each file as they were read, by file name.
        share: largest share of failing rows of a file; as many as that pass, one more does not. Compared exactly, as
            the decimal number that was written.

    Returns:
        The files above the share, the worst hit first, each by its most frequent failure.
    """
    exact = Fraction(repr(share))
    by_file = {file: [failure for failure in failures if failure.file == file] for file in frames}
    failed = {file: len({failure.row for failure in of_file}) for file, of_file in by_file.items()}
    over = [file for file, count in failed.items() if count > exact * len(frames[file])]
    over.sort(key=lambda file: failed[file] / len(frames[file]), reverse=True)
    sentences = []
    for file in over:
        (column, reason), count = Counter((failure.column, failure.reason) for failure in by_file[file]).most_common(1)[
            0
        ]
        examples = [failure.row for failure in by_file[file] if (failure.column, failure.reason) == (column, reason)][
            :3
        ]
        names = ", ".join(row_name(frames[file], row) for row in examples)
        size = len(frames[file])
        sentences.append(
            f"{file}: column '{column}': {reason} in {count} rows, such as {names}; {failed[file]} of {size} rows fail "
            f"a check, quarantine_share {share:g} lets {int(exact * size)} pass"
        )
    return sentences


def row_name(frame: pd.DataFrame, position: int) -> str:
    """The id of a row, or its place in the file (from 1) where it has none."""
    name = frame["id"].iloc[position]
    return name if isinstance(name, str) and name.strip() else f"row {position + 1}"


def _plain(value: Any) -> Any:
    """A cell as JSON knows it."""
    if pd.api.types.is_scalar(value) and pd.isna(value):
        return None
    return value.item() if hasattr(value, "item") else value

"""Rows that failed a check: set aside with the reason and counted; above a share of their file they stop the flow.

Pure decisions about failures that were found elsewhere. Of a failing row only its place is in memory, eight bytes per
failed check.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

COLUMNS = ("file", "id", "column", "reason", "row")
"""Columns of the quarantine file, all text; `row` is the whole row as JSON."""
EXAMPLES = 3
"""Rows that a message names."""


@dataclass(frozen=True)
class Failed:
    """The rows of a file that failed for one reason."""

    column: str
    reason: str
    rows: NDArray[np.int64]
    """Their places in the file, from 0, ascending."""
    names: tuple[str, ...]
    """Names of the first of them."""


@dataclass(frozen=True)
class FileFailures:
    """All failing rows of a file."""

    file: str
    """Name of the file."""
    size: int
    """Number of rows of the file."""
    failed: tuple[Failed, ...]

    @cached_property
    def rows(self) -> NDArray[np.int64]:
        """Places of the rows that failed any check, ascending."""
        return np.unique(np.concatenate([np.empty(0, np.int64), *(failed.rows for failed in self.failed)]))


def quarantined(failures: FileFailures, frame: pd.DataFrame, start: int) -> Iterator[dict[str, str]]:
    """Yield lines of the quarantine, with the keys of COLUMNS: a row that failed three checks has three lines.

    Args:
        failures: failures of the file.
        frame: some rows of the file, as they were read.
        start: place of the first of them in the file.
    """
    lines = []
    for failed in failures.failed:
        first, end = np.searchsorted(failed.rows, [start, start + len(frame)])
        lines += [(int(row) - start, failed.column, failed.reason) for row in failed.rows[first:end]]
    for row, column, reason in sorted(lines):
        whole = {name: _plain(value) for name, value in frame.iloc[row].items()}
        line = (
            failures.file,
            row_name(whole["id"], start + row),
            column,
            reason,
            json.dumps(whole, ensure_ascii=False),
        )
        yield dict(zip(COLUMNS, line, strict=True))


def counts_by_reason(files: Iterable[FileFailures]) -> dict[str, int]:
    """Count the failures for each reason, most frequent first, ties by name."""
    counts: Counter[str] = Counter()
    for file in files:
        for failed in file.failed:
            counts[failed.reason] += len(failed.rows)
    return dict(sorted(counts.items(), key=lambda item: (-item[1], item[0])))


def why_stop(files: Sequence[FileFailures], share: float) -> list[str]:
    """Return a sentence about every file that has too many failing rows: its column, the count and three rows.

    Args:
        files: files of the data set.
        share: largest share of failing rows of a file: exactly this share passes, one row more does not. It is compared
            exactly, as the decimal number that was written.

    Returns:
        A sentence for each file above the share, highest share first, with its most frequent failure.
    """
    exact = Fraction(repr(share))
    over = [(len(file.rows), file) for file in files if len(file.rows) > exact * file.size]
    over.sort(key=lambda counted: counted[0] / counted[1].size, reverse=True)
    sentences = []
    for count, file in over:
        most = max(file.failed, key=lambda failed: len(failed.rows))
        sentences.append(
            f"{file.file}: column '{most.column}': {most.reason} in {len(most.rows)} rows, such as "
            f"{', '.join(most.names)}; {count} of {file.size} rows fail a check, quarantine_share {share:g} lets "
            f"{int(exact * file.size)} pass"
        )
    return sentences


def row_name(name: object, place: int) -> str:
    """Return the id of a row, or its place in the file (from 1) if it has none."""
    return name if isinstance(name, str) and name.strip() else f"row {place + 1}"


def _plain(value: Any) -> Any:
    """Return a cell as a value that JSON supports."""
    if pd.api.types.is_scalar(value) and pd.isna(value):
        return None
    return value.item() if hasattr(value, "item") else value

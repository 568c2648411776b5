"""The local journal of a run's metrics: one JSON line a call, appended before anything is sent.

It is the authoritative record of the curves: values that a tracking server missed, and values that a run had logged
before SIGKILL, are read from here. A line that was cut off by a kill is skipped.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from models.base.atomic_write import write_file
from models.base.errors import UserError


@dataclass(frozen=True)
class JournalRow:
    """The metrics logged in one call."""

    step: int
    timestamp: int
    """Milliseconds since 1970."""
    metrics: dict[str, float]
    """Finite values only, by the key that the caller used."""


def read_journal(path: Path) -> list[JournalRow]:
    """Return all rows of a journal in the order of writing; none if the file is missing.

    Raises:
        UserError: a line before the last cannot be parsed; the message names the line.
    """
    if not path.is_file():
        return []
    lines = path.read_text(encoding="utf-8").split("\n")
    rows = []
    for number, line in enumerate(lines, start=1):
        if not line:
            continue
        try:
            entry = json.loads(line)
            rows.append(JournalRow(int(entry["step"]), int(entry["timestamp"]), dict(entry["metrics"])))
        except (ValueError, KeyError, TypeError):
            if number == len(lines):  # no newline at the end: its writer was killed during the write
                break
            raise UserError(f"{path}, line {number}: not a row of a metric journal") from None
    return rows


def write_journal(path: Path, rows: Iterable[JournalRow]) -> None:
    """Replace the journal by `rows`, atomically."""
    write_file(path, "".join(map(line_of, rows)))


def line_of(row: JournalRow) -> str:
    """Return the journal line of `row`."""
    return json.dumps({"step": row.step, "timestamp": row.timestamp, "metrics": row.metrics}) + "\n"

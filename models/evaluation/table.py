"""An evaluation as a table on disk, one row per completion: writer and reader."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from itertools import groupby
from pathlib import Path

import pandas as pd

from models.evaluation.records import Completion, PromptRecord

UNMEASURED = ("grade", "start_nats", "copied_run", "copied_share")
"""Columns that are left out if no completion has a value."""


def write_records(records: Sequence[PromptRecord], file: Path) -> None:
    """Write `records` to a Parquet file; the greedy completion of each prompt comes first."""
    rows = [
        {"prompt_id": record.id, "level": record.level, "greedy": number == 0, **asdict(completion)}
        for record in records
        for number, completion in enumerate([record.greedy, *record.samples])
    ]
    table = pd.DataFrame(rows)
    unused = [name for name in ("turns", "claims") if not any(row[name] for row in rows)]
    table = table.drop(columns=unused, errors="ignore")
    unmeasured = [name for name in UNMEASURED if name in table and table[name].isna().all()]
    table = table.drop(columns=unmeasured)
    table.to_parquet(file, index=False)


def read_records(file: Path) -> list[PromptRecord]:
    """Read the records that `write_records` wrote, in the same order."""
    rows = pd.read_parquet(file).to_dict("records")
    records = []
    for identity, of_prompt in groupby(rows, key=lambda row: row["prompt_id"]):
        first, *rest = [
            (
                int(row["level"]),
                Completion(**{str(k): v for k, v in row.items() if k not in ("prompt_id", "level", "greedy")}),
            )
            for row in of_prompt
        ]
        records.append(PromptRecord(str(identity), first[0], tuple(completion for _, completion in rest), first[1]))
    return records

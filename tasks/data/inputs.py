"""Logging of the rows that a step used as an input of its MLflow run: their number, hash and role."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from models.datasets.schema import Kind, Split, file_name
from tasks.tracking import records

ROLE: dict[str, str] = {"train": "training", "validation": "validation", "gate": "gate"}
"""Split -> role of its rows, which MLflow calls the context of a dataset input."""


class UsedRows(NamedTuple):
    """Name and digest under which MLflow records the rows that a run used."""

    name: str
    digest: str


def log_rows(
    run_id: str, data: str, kind: Kind, split: Split, rows: Iterable[Sequence[object]], folder: Path, role: str = ""
) -> UsedRows:
    """Log the rows of a split that a run used as a dataset input; rows that it left out are not included.

    Args:
        run_id: the run that used them.
        data: name of the data set.
        kind: problems, demonstrations or preferences.
        split: their split.
        rows: the used parts of each row, in the order of use; the digest is of these.
        folder: the clean data.
        role: context of the input; default: that of the split.
    """
    total, count = hashlib.sha256(), 0
    for row in rows:
        total.update(json.dumps(row, ensure_ascii=False).encode() + b"\n")
        count += 1
    used = UsedRows(f"{data}/{kind}_{split}", total.hexdigest()[:32])
    source = str(folder / file_name(kind, split))
    records.log_dataset(run_id, used.name, used.digest, source, role or ROLE[split], count)
    return used

"""Records of the runs: settings, curve, seconds, memory and measurements, all in one JSON file."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

from pydantic import TypeAdapter

from models.base.atomic_write import write_file

RESULTS = Path(__file__).with_name("records.json")
Side = Literal["ours", "trl"]


@dataclass(frozen=True)
class HeldOutScores:
    """Scores of a model on the held-out rows."""

    strict: tuple[float, ...]
    """1 if the row is right, else 0, [rows]."""
    lenient: tuple[float, ...] = ()
    """Value of the lenient metric in [0, 1], [rows]; empty without a lenient metric."""
    tokens: float = 0.0
    """Mean tokens of an answer."""
    finished: float = 1.0
    """Share of answers that ended by themselves."""


@dataclass(frozen=True)
class ReproductionRecord:
    """One run of one side."""

    experiment: str
    side: Side
    seed: int
    settings: Mapping[str, Any]
    """The resolved settings that the run was made with."""
    seconds: Mapping[str, float]
    """Wall time by stage."""
    peak_gib: float
    """Most memory that one process of the run held."""
    measured: Mapping[str, HeldOutScores]
    """Stage -> its model on the held-out rows."""
    curve: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    """Metric -> its value in each step of the last stage."""
    weights: str = ""
    """Digest of the final weights."""
    resumed_weights: str = ""
    """The same of a second run, which was killed and resumed; empty if none was made."""
    machine: Mapping[str, Any] = field(default_factory=dict)
    commit: str = ""


_RECORDS: TypeAdapter[list[ReproductionRecord]] = TypeAdapter(list[ReproductionRecord])


def read_all(file: Path = RESULTS) -> list[ReproductionRecord]:
    """Read all records of a file, by experiment, side and seed; none if the file does not exist."""
    return _RECORDS.validate_json(file.read_bytes()) if file.is_file() else []


def record_of(experiment: str, side: Side, seed: int, file: Path = RESULTS) -> ReproductionRecord | None:
    """Return the record of a run; None if the file does not have it."""
    return next((record for record in read_all(file) if _key(record) == (experiment, side, seed)), None)


def write(record: ReproductionRecord, file: Path = RESULTS) -> None:
    """Add a record to the file, which replaces the record of the same run."""
    others = [each for each in read_all(file) if _key(each) != _key(record)]
    records = sorted([*others, record], key=_key)
    write_file(file, json.dumps([asdict(each) for each in records], indent=1) + "\n")


def _key(record: ReproductionRecord) -> tuple[str, str, int]:
    return record.experiment, record.side, record.seed

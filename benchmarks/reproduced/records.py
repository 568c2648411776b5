"""What a run of an experiment leaves: one JSON with its settings, curve, seconds, memory and measurements."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

from pydantic import TypeAdapter

from models.atomic_write import write_file

RESULTS = Path(__file__).resolve().parents[1] / "results" / "reproduced"
Side = Literal["ours", "trl"]


@dataclass(frozen=True)
class Measured:
    """A model on the held-out rows."""

    strict: tuple[float, ...]
    """1 where the row is right, else 0, [rows]."""
    lenient: tuple[float, ...] = ()
    """Value of the lenient metric in [0, 1], [rows]; empty where there is none."""
    tokens: float = 0.0
    """Mean tokens of an answer."""
    finished: float = 1.0
    """Share of answers that ended by themselves."""


@dataclass(frozen=True)
class Record:
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
    measured: Mapping[str, Measured]
    """Stage -> its model on the held-out rows."""
    curve: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    """Metric -> its value in each step of the last stage."""
    weights: str = ""
    """Digest of the final weights."""
    resumed_weights: str = ""
    """The same of a second run, which was killed and resumed; empty where none was made."""
    machine: Mapping[str, Any] = field(default_factory=dict)
    commit: str = ""


_RECORD: TypeAdapter[Record] = TypeAdapter(Record)


def file_of(experiment: str, side: Side, seed: int, folder: Path = RESULTS) -> Path:
    """Return the file of a run."""
    return folder / f"{experiment}-{side}-{seed}.json"


def write(record: Record, folder: Path = RESULTS) -> Path:
    """Write a record. Returns its file."""
    file = file_of(record.experiment, record.side, record.seed, folder)
    write_file(file, json.dumps(asdict(record), indent=1) + "\n")
    return file


def read_all(folder: Path = RESULTS) -> list[Record]:
    """Read all records, by experiment, side and seed."""
    return [_RECORD.validate_json(file.read_bytes()) for file in sorted(folder.glob("*-*-*.json"))]

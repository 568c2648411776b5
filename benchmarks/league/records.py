"""Results of trainings of the league: one row of a Parquet file each, with the recipe and code that made it.

A result counts only while the recipe and the code of models/ are unchanged: it has the digests of both. A later run, on
this machine or another, trains only what the committed file does not have.
"""

from __future__ import annotations

import hashlib
import subprocess
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from functools import lru_cache
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pydantic import TypeAdapter

from models.base.atomic_write import replace_file

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "benchmarks" / "results" / "league.parquet"
SEARCHED = ROOT / "benchmarks" / "results" / "league_search.parquet"
"""Trials of step sizes."""


@dataclass(frozen=True)
class Point:
    """Results of the policy on the held-out problems after so many rounds."""

    round: int
    accuracy: float
    """Share of right samples."""
    by_problem: tuple[float, ...]
    """Share of right samples of each problem, always in the same order."""
    greedy: float
    """Share of right greedy answers."""
    tokens: float
    """Mean length of the samples."""
    finished: float
    """Share of samples that ended by themselves."""


@dataclass(frozen=True)
class LeagueResult:
    """One training."""

    recipe: str
    seed: int
    budget: int
    """Completions that were granted."""
    completions: int
    """Completions that its rounds sampled or read."""
    updates: int
    """Optimiser steps."""
    learning_rate: float
    curve: tuple[Point, ...]
    """Points from the start to the end; empty if it failed."""
    rounds: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    """Reward, length, entropy and gradient of its rounds, by metric."""
    claims: Mapping[str, float] = field(default_factory=dict)
    """Metrics that methods of preferences or data claim to improve."""
    failed: str = ""
    """Line of the error that ended it."""
    recipe_digest: str = ""
    code_digest: str = ""
    commit: str = ""
    seconds: float = 0.0
    """Seconds of training, measurements left out."""
    processor_seconds: float = 0.0
    """Processor seconds of the process, everything included."""
    machine: str = ""

    def counts(self, recipe_digest: str, code: str | None) -> bool:
        """Return whether it is of this recipe and this code; `code` None accepts that of other code."""
        return self.recipe_digest == recipe_digest and code in (None, self.code_digest)


_RESULTS: TypeAdapter[list[LeagueResult]] = TypeAdapter(list[LeagueResult])
_NUMBERS = pa.list_(pa.float64())
_CURVE = pa.struct(
    [
        ("round", pa.int64()),
        ("accuracy", pa.float64()),
        ("by_problem", _NUMBERS),
        ("greedy", pa.float64()),
        ("tokens", pa.float64()),
        ("finished", pa.float64()),
    ]
)
_TEXTS = ("failed", "recipe_digest", "code_digest", "commit", "machine")
_SCHEMA = pa.schema(
    [
        ("recipe", pa.string()),
        *((name, pa.int64()) for name in ("seed", "budget", "completions", "updates")),
        *((name, pa.float64()) for name in ("learning_rate", "seconds", "processor_seconds")),
        ("curve", pa.list_(_CURVE)),
        ("rounds", pa.map_(pa.string(), _NUMBERS)),
        ("claims", pa.map_(pa.string(), pa.float64())),
        *((name, pa.string()) for name in _TEXTS),
    ]
)


def write(result: LeagueResult, file: Path, *, by_rate: bool = False) -> None:
    """Add a result to a Parquet file; it replaces that of the same recipe and seed.

    Args:
        by_rate: whether results that differ in the learning rate are kept apart, as in a search.
    """
    key = _key(result, by_rate)
    others = [other for other in read_all(file) if _key(other, by_rate) != key]
    rows = [asdict(each) for each in sorted([*others, result], key=lambda each: _key(each, True))]
    with replace_file(file) as part:
        pq.write_table(pa.Table.from_pylist(rows, _SCHEMA), part, compression="zstd", compression_level=19)


def read_all(file: Path) -> list[LeagueResult]:
    """Read every result of a Parquet file, by recipe and seed; none if the file does not exist."""
    if not file.is_file():
        return []
    rows = pq.read_table(file).to_pylist(maps_as_pydicts="strict")
    return _RESULTS.validate_python(rows)


def _key(result: LeagueResult, by_rate: bool) -> tuple[str, int, float]:
    return result.recipe, result.seed, result.learning_rate if by_rate else 0.0


@lru_cache(maxsize=1)
def code_digest() -> str:
    """Compute SHA-256 of the learning code and of the league's training code."""
    total = hashlib.sha256()
    names = ("league/training.py", "shared/recipe_loop.py", "shared/warm_starts.py")
    trainers = (ROOT / "benchmarks" / name for name in names)
    for file in [*sorted((ROOT / "models").rglob("*.py")), *trainers]:
        total.update(f"{file.relative_to(ROOT)}\0".encode() + file.read_bytes() + b"\0")
    return total.hexdigest()


def commit() -> str:
    """Return the commit of the checkout; with + after it if something is not committed; empty outside a repository."""

    def git(*words: str) -> str:
        answer = subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=False)
        return answer.stdout.strip() if answer.returncode == 0 else ""

    head = git("rev-parse", "--short=12", "HEAD")
    return head + ("+" if head and git("status", "--porcelain", "--", "models", "recipes") else "")

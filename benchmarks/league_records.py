"""What a training of the league leaves: one JSON, whole or absent, that says what it was made with.

A result counts only while the recipe and the code of models/ are what they were: both stand in it as digests, so that
a later session, on this machine or another, goes on with what is committed.
"""

from __future__ import annotations

import hashlib
import json
import subprocess
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from functools import lru_cache
from pathlib import Path

from pydantic import TypeAdapter

from models.atomic_write import write_file

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "benchmarks" / "results" / "league"


@dataclass(frozen=True)
class Point:
    """The policy on the held-out problems after so many rounds."""

    round: int
    accuracy: float
    """Share of right samples."""
    by_problem: tuple[float, ...]
    """The same of each problem, always in the same order."""
    greedy: float
    """Share of right greedy answers."""
    tokens: float
    """Mean length of the samples."""
    finished: float
    """Share of samples that ended by themselves."""


@dataclass(frozen=True)
class Result:
    """One training."""

    recipe: str
    seed: int
    budget: int
    """Completions that were granted."""
    completions: int
    """Those that its rounds sampled or read."""
    updates: int
    """Optimiser steps."""
    learning_rate: float
    curve: tuple[Point, ...]
    """From the start to the end; empty where it failed."""
    rounds: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    """What its rounds told of reward, length, entropy, gradient, by metric."""
    claims: Mapping[str, float] = field(default_factory=dict)
    """What methods of preferences or data claim for themselves."""
    failed: str = ""
    """The line of the error that ended it."""
    recipe_digest: str = ""
    code_digest: str = ""
    commit: str = ""
    seconds: float = 0.0
    """Of training, measurements left out."""
    processor_seconds: float = 0.0
    """Of the process, everything included."""
    machine: str = ""

    def counts(self, recipe_digest: str, code: str | None) -> bool:
        """Whether it is of this recipe and this code; `code` None accepts that of other code."""
        return self.recipe_digest == recipe_digest and code in (None, self.code_digest)


_RESULT: TypeAdapter[Result] = TypeAdapter(Result)


def write(result: Result, folder: Path) -> Path:
    """Write RECIPE-SEED.json into `folder`, in place of an older one."""
    file = folder / f"{result.recipe}-{result.seed}.json"
    write_file(file, json.dumps(asdict(result), indent=1) + "\n")
    return file


def read(file: Path) -> Result:
    """The result that a file holds."""
    return _RESULT.validate_json(file.read_text())


def read_all(folder: Path) -> list[Result]:
    """Every result in `folder`, by name."""
    return [read(file) for file in sorted(folder.glob("*.json"))]


@lru_cache(maxsize=1)
def code_digest() -> str:
    """SHA-256 of the learning code and of how the league trains with it."""
    total = hashlib.sha256()
    trainers = (Path(__file__).with_name(name) for name in ("league_training.py", "recipe_loop.py", "warm_starts.py"))
    for file in [*sorted((ROOT / "models").rglob("*.py")), *trainers]:
        total.update(f"{file.relative_to(ROOT)}\0".encode() + file.read_bytes() + b"\0")
    return total.hexdigest()


def commit() -> str:
    """The commit of the checkout; with + behind it where something is not committed; empty outside a repository."""

    def git(*words: str) -> str:
        answer = subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=False)
        return answer.stdout.strip() if answer.returncode == 0 else ""

    head = git("rev-parse", "--short=12", "HEAD")
    return head + ("+" if head and git("status", "--porcelain", "--", "models", "recipes") else "")

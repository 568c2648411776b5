"""Seconds until the command line answers: help, a misspelt recipe, a wrong key, a list of 10,000 runs, a repeated run.

Each command runs in a process of its own, as a user's does. The limits are the targets that were set. The runs to list
are in a real store: one is written through MLflow, the others are copies of its rows in the database.
"""

from __future__ import annotations

import os
import resource
import sqlite3
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from benchmarks.shared.rows import Row, compare
from benchmarks.shared.settings import Settings
from benchmarks.speed.overhead import copy_of_the_project
from tasks.tracking import records, runs, store, tags

ROOT = Path(__file__).resolve().parents[2]
RUNS = 10_000
"""Flow runs of the list; each has STEPS children."""
STEPS = 2


def measure(settings: Settings, name: str) -> list[Row]:
    """Measure one row a command; `ours` are wall seconds, `peer` the limit."""
    repeats = 1 if settings.quick else max(3, settings.repeats)
    with tempfile.TemporaryDirectory() as place:
        empty, full, project = Path(place) / "empty", Path(place) / "full", Path(place) / "project"
        fill(full, 200 if settings.quick else RUNS)
        copy_of_the_project(project)
        rows = [
            row("rewardflow --help", 0.5, repeats, ROOT, empty, "--help"),
            row("a misspelt recipe", 1.0, repeats, ROOT, empty, "run", "arithmetik"),
            row("an unknown key of a recipe", None, repeats, ROOT, empty, "run", "arithmetic", "-s", "seeed=1"),
            row(f"rewardflow runs over {RUNS:,} runs", 3.0, repeats, ROOT, full, "runs"),
        ]
        again = ("run", "arithmetic", "--smoke")
        seconds([*again], project, empty)
        rows.append(row("a smoke run with nothing changed", 10.0, repeats, project, empty, *again))
    return rows


def row(what: str, limit: float | None, repeats: int, folder: Path, home: Path, *arguments: str) -> Row:
    """Measure the row of one command."""
    taken = [seconds(arguments, folder, home) for _ in range(repeats)]
    made = compare(
        f"seconds until the command line has answered: {what}",
        [wall for wall, _ in taken],
        None if limit is None else [limit],
        "s",
        None if limit is None else 1.0,
        smaller_is_better=True,
        against="the limit",
        wanted="" if limit is None else f"at most {limit:g} s",
        details={"cpu_seconds": [cpu for _, cpu in taken]},
    )
    return made if limit is not None else replace(made, reason="no limit was set")


def seconds(arguments: Sequence[str], folder: Path, home: Path) -> tuple[float, float]:
    """Return wall and processor seconds of one command, its children included."""
    foreign = ("PREFECT_", "MLFLOW_", "REWARDFLOW_")
    kept = {key: value for key, value in os.environ.items() if not key.startswith(foreign)}
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run(
        [sys.executable, "-m", "flows.command_line", *arguments],
        cwd=folder,
        env={**kept, "REWARDFLOW_HOME": str(home)},
        capture_output=True,
    )
    wall, after = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    return wall, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def fill(home: Path, number: int) -> None:
    """Fill a state folder with `number` flow runs and their steps, each with the tags and metrics of a real one."""
    store.configure(home)
    flow = runs.open_flow_run("arithmetic", "train arithmetic", {tags.RECIPE: "arithmetic", tags.SEED: "0"})
    records.log_metrics(flow, {f"verdict/number_{i}": float(i) for i in range(20)})
    steps = [runs.open_step_run(flow, f"step {i}") for i in range(STEPS)]
    for run in (*steps, flow):
        records.log_metrics(run, {"seconds": 1.0})
        runs.close_run(run)
    database = sqlite3.connect(home / "mlflow.db")
    with database:
        for _ in range(number - 1):
            new = {old: uuid.uuid4().hex for old in (flow, *steps)}
            for table in ("runs", "tags", "latest_metrics", "metrics"):
                for old, own in new.items():
                    _copy(database, table, old, own, {flow: new[flow]})
    database.close()


def _copy(database: sqlite3.Connection, table: str, old: str, own: str, parents: dict[str, str]) -> None:
    """Copy the rows of a run under a new id, started a second later for every existing run."""
    read = database.execute(f"SELECT * FROM {table} WHERE run_uuid = ?", (old,))
    names = [column[0] for column in read.description]
    for line in read.fetchall():
        values = dict(zip(names, line, strict=True)) | {"run_uuid": own}
        if values.get("value") in parents:
            values["value"] = parents[values["value"]]
        if table == "runs":
            for when in ("start_time", "end_time"):
                values[when] += database.total_changes
        marks = ", ".join("?" for _ in names)
        database.execute(f"INSERT INTO {table} VALUES ({marks})", [values[name] for name in names])

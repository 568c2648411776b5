"""MLflow's runs: one for each run of a flow, with a child run for each step.

All functions take the run id, because MLflow's active run belongs to a thread.

A run whose process was killed stays RUNNING in MLflow; the next flow ends it.
"""

from __future__ import annotations

import getpass
import hashlib
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from tasks.host.code_version import NO_COMMIT
from tasks.runner import interrupt
from tasks.tracking import process, state_folder, store, tags
from tasks.tracking.mirrors import choice, mirrored

Status = Literal["FINISHED", "FAILED", "KILLED"]

LONGEST_PARAM = 6000
"""Maximum number of characters of a parameter in MLflow."""
LONGEST_TAG = 8000
"""Maximum number of characters of a run's tag in MLflow."""
_NAME = re.compile(r"[\w.: -]{1,100}")
"""Keys that MLflow accepts as part of a parameter's name: it refuses other characters, and slashes at the end."""
PARENT_TAG = "mlflow.parentRunId"
"""MLflow's tag on a child run, with the id of its parent."""


def open_flow_run(
    experiment: str, name: str, run_tags: Mapping[str, str] | None = None, params: Mapping[str, Any] | None = None
) -> str:
    """Begin the run of a flow in `experiment` (created if it is missing). Return its run id.

    Args:
        experiment: name of the MLflow experiment.
        name: display name in the list of runs.
        run_tags: see tasks.tracking.tags.
        params: may be nested; see `log_params`.

    Raises:
        UserError: a chosen mirror is unknown or not installed.
    """
    mirrors = choice.require_installed()
    all_tags = {**(run_tags or {}), **({tags.MIRRORS: " ".join(mirrors)} if mirrors else {})}
    run_id = _create(store.experiment_id(experiment), name, all_tags)
    mirrored.open_flow(run_id, experiment, all_tags)
    log_params(run_id, params or {})
    return run_id


def open_step_run(parent_run_id: str, step: str, run_tags: Mapping[str, str] | None = None, name: str = "") -> str:
    """Begin the child run of one step of a flow. Return its run id.

    Args:
        step: the step, for queries.
        name: display name; default: the step.
    """
    parent = store.patiently(store.client().get_run, parent_run_id)
    step_tags = {PARENT_TAG: parent_run_id, tags.STEP: step, **(run_tags or {})}
    run_id = _create(parent.info.experiment_id, name or step, step_tags)
    mirrored.open_step(run_id, parent_run_id, name or step, step_tags)
    return run_id


def rename(run_id: str, name: str) -> None:
    """Set the display name of a run."""
    store.patiently(store.client().update_run, run_id, name=name)


def close_run(run_id: str, status: Status = "FINISHED") -> None:
    """End a run, and its copies in the mirrors; wait for an unreachable tracking server."""
    mirrored.close(run_id, status == "FINISHED")
    store.patiently(store.client().set_terminated, run_id, status=status)


def status_after(error: BaseException) -> Status:
    """Return the status of a run that `error` stopped: KILLED after a signal, otherwise FAILED."""
    # A BaseException that is not an Exception came from outside: Ctrl-C, SIGTERM. An Exception raised after such a
    # request is also reported as KILLED.
    return "FAILED" if isinstance(error, Exception) and interrupt.received_signal() is None else "KILLED"


def set_tags(run_id: str, run_tags: Mapping[str, str]) -> None:
    """Set tags of a run; values too long for MLflow are shortened (see `shorten`)."""
    from mlflow.entities import RunTag

    entries = [RunTag(key, shorten(str(value), LONGEST_TAG)) for key, value in run_tags.items()]
    for start in range(0, len(entries), 100):
        store.patiently(store.client().log_batch, run_id, tags=entries[start : start + 100])
    mirrored.add_tags(run_id, {entry.key: entry.value for entry in entries})


def tags_of(run_id: str) -> dict[str, str]:
    """Return the tags of a run."""
    return dict(store.patiently(store.client().get_run, run_id).data.tags)


def inherited_tags(run_id: str) -> dict[str, str]:
    """Return the tags that a model version inherits from the flow run that made it: recipe, code, data and seed."""
    flow_tags = tags_of(run_id)
    keys = (
        *(tags.RECIPE, tags.RECIPE_SHA256, tags.GIT_COMMIT, tags.RELEASE, tags.DATA_REVISION, tags.SEED),
        *(tags.BASE_VERSION, tags.BASE_SOURCE, tags.MERGED_FROM, tags.UNPINNED),
    )
    return {key: flow_tags[key] for key in keys if key in flow_tags}


def log_params(run_id: str, params: Mapping[str, Any]) -> None:
    """Log parameters. Nested mappings become dotted keys (`loop.schedule.steps`), long values are shortened.

    A mapping whose keys MLflow does not accept as names, such as patterns, becomes one parameter with its text as
    value. MLflow's parameters cannot be changed: logging the same value again is accepted, another value raises
    MlflowException.
    """
    from mlflow.entities import Param

    texts = param_texts(params)
    entries = [Param(key, value) for key, value in texts.items()]
    for start in range(0, len(entries), 100):
        store.patiently(store.client().log_batch, run_id, params=entries[start : start + 100])
    mirrored.add_params(run_id, texts)


def param_texts(params: Mapping[str, Any]) -> dict[str, str]:
    """Return parameters as MLflow stores them: one level, dotted keys, texts of at most LONGEST_PARAM characters."""
    return {key: shorten(str(value), LONGEST_PARAM) for key, value in _flatten(params).items()}


def shorten(value: str, longest: int) -> str:
    """Cut a text that is longer than `longest`; it then ends with its length and hash, so that long texts differ."""
    if len(value) <= longest:
        return value
    digest = hashlib.sha256(value.encode()).hexdigest()[:16]
    ending = f"... ({len(value)} characters, sha256 {digest})"
    return value[: longest - len(ending)] + ending


@dataclass(frozen=True)
class DeadRun:
    """A run whose process died before the run ended."""

    run_id: str
    name: str
    of_flow: bool
    """Whether it is a flow's run; False: a step's."""


def sweep_dead_runs(experiment: str) -> list[DeadRun]:
    """End as KILLED the runs of `experiment` that are RUNNING although their process on this host is gone.

    Runs of other hosts, and runs that Rewardflow did not begin, are not changed. Returns the runs that were ended.
    """
    experiment_record = store.patiently(store.client().get_experiment_by_name, experiment)
    if experiment_record is None:
        return []
    swept = []
    for run in store.all_pages(
        store.client().search_runs, [experiment_record.experiment_id], "attributes.status = 'RUNNING'"
    ):
        if process.surely_dead(run.data.tags):
            set_tags(run.info.run_id, {tags.ENDED_BY: "sweep: the process that wrote this run is gone"})
            close_run(run.info.run_id, "KILLED")
            swept.append(DeadRun(run.info.run_id, run.info.run_name, PARENT_TAG not in run.data.tags))
    return swept


def _create(experiment: str, name: str, run_tags: Mapping[str, str]) -> str:
    mlflow_tags = {"mlflow.user": _user(), "mlflow.source.name": "rewardflow", "mlflow.source.type": "LOCAL"}
    if run_tags.get(tags.GIT_COMMIT, NO_COMMIT) != NO_COMMIT:
        mlflow_tags["mlflow.source.git.commit"] = run_tags[tags.GIT_COMMIT]
    all_tags = {**mlflow_tags, **run_tags, **process.mark(), tags.STATE_FOLDER: state_folder.mark()}
    stored_tags = {key: shorten(str(value), LONGEST_TAG) for key, value in all_tags.items()}
    began = int(time.time() * 1000)
    run = store.patiently(store.client().create_run, experiment, start_time=began, tags=stored_tags, run_name=name)
    return str(run.info.run_id)


def _flatten(params: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in params.items():
        if isinstance(value, Mapping) and value and all(_NAME.fullmatch(str(inner)) for inner in value):
            flat.update(_flatten(value, f"{prefix}{key}."))
        else:
            flat[f"{prefix}{key}"] = value
    return flat


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container's user without a name
        return "unknown"

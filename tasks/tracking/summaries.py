"""Runs of MLflow as plain data: lists, summaries and addresses of pages, for the command line."""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from models.base.errors import UserError
from tasks.tracking import store, tags
from tasks.tracking.records import NOTE
from tasks.tracking.runs import PARENT_TAG

if TYPE_CHECKING:
    from mlflow.entities import Run

FLOW_RUNS = f"tags.`{PARENT_TAG}` IS NULL and tags.`{tags.STARTED}` IS NOT NULL"
"""Filter: runs that Rewardflow began for a flow, and not for one of its steps."""
MOST = 50_000
"""Runs that MLflow returns in one answer."""


class NoSuchRunError(UserError):
    """No run has the given name or id."""


@dataclass(frozen=True)
class DataLink:
    """A data set that a run read."""

    name: str
    digest: str
    """Content hash: DVC's md5 of a file or folder, or a SHA-256, cut to 32 digits, of the rows that a step used."""
    context: str
    """Purpose for which it was read: raw, training, evaluation, ..."""
    source: str
    revision: str
    """Git commit of the repository that the data were read from; empty if unknown."""
    rows: int | None


@dataclass(frozen=True)
class RunLine:
    """A run in a list."""

    run_id: str
    name: str
    experiment: str
    """The recipe's name."""
    status: str
    """RUNNING, FINISHED, FAILED or KILLED."""
    started: datetime
    seconds: float | None
    """None while it runs."""
    tags: Mapping[str, str] = field(repr=False)
    metrics: Mapping[str, float] = field(repr=False)
    """The last value of each metric."""


@dataclass(frozen=True)
class RunSummary:
    """One run and its steps."""

    line: RunLine
    params: Mapping[str, str]
    data: tuple[DataLink, ...]
    steps: tuple[RunLine, ...]
    """Child runs in the order in which they began."""
    description: str
    """Markdown."""
    address: str
    """Page of the run below the address of the MLflow server; see `page_of`."""


def recent_runs(experiment: str = "", limit: int = 20) -> list[RunLine]:
    """Return the newest flow runs (not their steps) of `experiment`, or of all experiments, newest first.

    The server filters, sorts and truncates: one request, however many runs there are.

    Raises:
        UserError: the experiment does not exist; the message names the existing ones.
    """
    names = _experiments(experiment)
    return [line_of(run, names) for run in _search(names, FLOW_RUNS, limit)]


def run_summary(experiment: str, wanted: str) -> RunSummary:
    """Return a summary of the run whose id, beginning of an id or name is `wanted`; "latest" for the newest flow run.

    Args:
        experiment: the experiment to search; empty for all.
        wanted: flow runs take precedence over steps.

    Raises:
        UserError: the experiment does not exist, or no run matches, or several do.
    """
    names = _experiments(experiment)
    run = _find(names, wanted)
    steps = store.patiently(
        store.client().search_runs,
        [run.info.experiment_id],
        f"tags.`{PARENT_TAG}` = '{run.info.run_id}'",
        order_by=["attributes.start_time ASC"],
        max_results=1000,
    )
    return RunSummary(
        line=line_of(run, names),
        params=dict(sorted(run.data.params.items())),
        data=data_of(run),
        steps=tuple(line_of(step, names) for step in steps),
        description=run.data.tags.get(NOTE, ""),
        address=page_of(run.info.experiment_id, run.info.run_id),
    )


def page_of(experiment: str, run_id: str = "", part: str = "") -> str:
    """Return the path of a page of MLflow's UI below the server's address, in the view for training, not for prompts.

    Args:
        experiment: id of the experiment.
        run_id: a run; without it the list of runs.
        part: part of the run's page: "model-metrics", "artifacts", "artifacts/plots/training.png"; default: overview.
    """
    path = "/".join(piece for piece in (f"/#/experiments/{experiment}/runs", run_id, part) if piece)
    return f"{path}?workflowType=machine_learning"


def page_of_run(run_id: str) -> str:
    """Return the path of a run's page below the server's address."""
    run = store.patiently(store.client().get_run, run_id)
    return page_of(run.info.experiment_id, run_id)


def name_and_note(run_id: str) -> tuple[str, str]:
    """Return the current name and description (Markdown) of a run."""
    run = store.patiently(store.client().get_run, run_id)
    return run.info.run_name or "", run.data.tags.get(NOTE, "")


def line_of(run: Run, experiments: Mapping[str, str]) -> RunLine:
    """Convert a run of MLflow to plain data; `experiments` is id -> name."""
    ended = run.info.end_time
    return RunLine(
        run_id=run.info.run_id,
        name=run.info.run_name or "",
        experiment=experiments.get(run.info.experiment_id, ""),
        status=run.info.status,
        started=datetime.fromtimestamp(run.info.start_time / 1000, tz=UTC),
        seconds=(ended - run.info.start_time) / 1000 if ended else None,
        tags={key: value for key, value in run.data.tags.items() if not key.startswith("mlflow.")},
        metrics=dict(run.data.metrics),
    )


def data_of(run: Run) -> tuple[DataLink, ...]:
    """Return the data sets that `run` read, raw ones first."""
    links = []
    for entry in run.inputs.dataset_inputs if run.inputs else []:
        profile = _json(entry.dataset.profile)
        source = _json(entry.dataset.source)
        context = next((tag.value for tag in entry.tags if tag.key == "mlflow.data.context"), "")
        rows = profile.get("num_rows")
        links.append(
            DataLink(
                name=entry.dataset.name,
                digest=entry.dataset.digest,
                context=context,
                source=str(source.get("uri", entry.dataset.source)),
                revision=str(profile.get("dvc_revision", "")),
                rows=int(str(rows)) if rows is not None else None,
            )
        )
    return tuple(sorted(links, key=lambda link: (link.context != "raw", link.context, link.name)))


def _experiments(wanted: str) -> dict[str, str]:
    """Return id -> name of the experiment `wanted`, or of all."""
    listed = store.all_pages(store.client().search_experiments, max_results=1000)
    all_of_them = {str(entry.experiment_id): str(entry.name) for entry in listed}
    if not wanted:
        return all_of_them
    names = sorted(set(all_of_them.values()) - {"Default"})
    if wanted not in names:
        near = difflib.get_close_matches(wanted, names, n=1)
        known = f"did you mean {near[0]}?" if near else f"there is {', '.join(names) or 'none yet'}"
        raise UserError(f"no recipe {wanted!r} was run here; {known}")
    return {number: name for number, name in all_of_them.items() if name == wanted}


def _search(experiments: Mapping[str, str], query: str, limit: int) -> list[Run]:
    newest = ["attributes.start_time DESC"]
    return list(
        store.patiently(
            store.client().search_runs, list(experiments), query, order_by=newest, max_results=min(limit, MOST)
        )
    )


def _find(experiments: Mapping[str, str], wanted: str) -> Run:
    if wanted == "latest":
        queries = [FLOW_RUNS]
    elif re.fullmatch("[0-9a-f]{1,32}", wanted):
        begins = f"attributes.run_id LIKE '{wanted}%'"
        queries = [f"{FLOW_RUNS} and {begins}", begins]
    else:
        queries = []
    if wanted != "latest" and not set(wanted) & set("'\"`"):  # MLflow's filters have no escape
        queries.append(f"{FLOW_RUNS} and attributes.run_name = '{wanted}'")
    for query in queries:
        fitting = _search(experiments, query, 1 if wanted == "latest" else 4)
        if len(fitting) > 1:
            some = ", ".join(f"{run.info.run_id[:8]} {run.info.run_name}" for run in fitting[:3])
            raise UserError(f"more than one run fits {wanted!r} ({some}, ...): give more of the id")
        if fitting:
            return fitting[0]
    raise NoSuchRunError(f"no run {wanted!r}; `rewardflow runs` lists those that there are")


def _json(text: str | None) -> dict[str, object]:
    try:
        value = json.loads(text or "{}")
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}


def was_reused(line: RunLine) -> bool:
    """Return whether the run records a step that reused the result of an earlier run."""
    return tags.REUSED in line.tags

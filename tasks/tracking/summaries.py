"""What the command line tells about runs: plain data, read from MLflow."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from models.errors import UserError
from tasks.tracking import store, tags
from tasks.tracking.records import NOTE
from tasks.tracking.runs import PARENT_TAG

if TYPE_CHECKING:
    from mlflow.entities import Run


@dataclass(frozen=True)
class DataLink:
    """A data set that a run read."""

    name: str
    digest: str
    """Content hash, DVC's md5."""
    context: str
    """What it was read for: raw, training, evaluation, ..."""
    source: str
    revision: str
    """DVC revision, empty where unknown."""
    rows: int | None


@dataclass(frozen=True)
class RunLine:
    """A run in a list."""

    run_id: str
    name: str
    status: str
    """RUNNING, FINISHED, FAILED or KILLED."""
    started: datetime
    seconds: float | None
    """None while it runs."""
    tags: Mapping[str, str] = field(repr=False)
    metrics: Mapping[str, float] = field(repr=False)
    """The last value of each."""


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


def recent_runs(experiment: str, limit: int = 20) -> list[RunLine]:
    """The newest flow runs (not their steps) of `experiment`, newest first; none where there is no such experiment."""
    found = store.patiently(store.client().get_experiment_by_name, experiment)
    if found is None:
        return []
    newest = ["attributes.start_time DESC"]
    runs = store.all_pages(store.client().search_runs, [found.experiment_id], order_by=newest, max_results=1000)
    return [line_of(run) for run in runs if PARENT_TAG not in run.data.tags][:limit]


def run_summary(experiment: str, wanted: str) -> RunSummary:
    """All about the run whose id, beginning of an id (four characters or more) or name is `wanted`; "latest" too.

    Raises:
        UserError: no run, or several, fit.
    """
    run = _find(experiment, wanted)
    steps = store.patiently(
        store.client().search_runs,
        [run.info.experiment_id],
        f"tags.`{PARENT_TAG}` = '{run.info.run_id}'",
        order_by=["attributes.start_time ASC"],
        max_results=1000,
    )
    return RunSummary(
        line=line_of(run),
        params=dict(sorted(run.data.params.items())),
        data=data_of(run),
        steps=tuple(line_of(step) for step in steps),
        description=run.data.tags.get(NOTE, ""),
        address=page_of(run.info.experiment_id, run.info.run_id),
    )


def page_of(experiment: str, run_id: str = "", part: str = "") -> str:
    """Path of a page of the UI below the server's address, in the view for training and not the one for prompts.

    Args:
        experiment: id of the experiment.
        run_id: a run; without it the list of runs.
        part: of the run's page: "model-metrics", "artifacts", "artifacts/plots/training.png"; the overview without.
    """
    path = "/".join(piece for piece in (f"/#/experiments/{experiment}/runs", run_id, part) if piece)
    return f"{path}?workflowType=machine_learning"


def page_of_run(run_id: str) -> str:
    """Path of a run's page below the server's address."""
    run = store.patiently(store.client().get_run, run_id)
    return page_of(run.info.experiment_id, run_id)


def line_of(run: Run) -> RunLine:
    """A run of MLflow as plain data."""
    ended = run.info.end_time
    return RunLine(
        run_id=run.info.run_id,
        name=run.info.run_name or "",
        status=run.info.status,
        started=datetime.fromtimestamp(run.info.start_time / 1000, tz=UTC),
        seconds=(ended - run.info.start_time) / 1000 if ended else None,
        tags={key: value for key, value in run.data.tags.items() if not key.startswith("mlflow.")},
        metrics=dict(run.data.metrics),
    )


def data_of(run: Run) -> tuple[DataLink, ...]:
    """The data sets that `run` read, raw ones first."""
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


def _find(experiment: str, wanted: str) -> Run:
    recent = recent_runs(experiment, limit=1000)
    if wanted == "latest" and recent:
        fitting = recent[:1]
    else:
        fitting = [line for line in recent if wanted in (line.run_id, line.name)] or [
            line for line in recent if len(wanted) >= 4 and line.run_id.startswith(wanted)
        ]
    if not fitting:
        from mlflow import MlflowException

        try:  # an id of a step, or of a run in another experiment
            return store.patiently(store.client().get_run, wanted)
        except MlflowException:
            raise UserError(f"no run {wanted!r} in experiment {experiment!r}; see `rewardflow runs`") from None
    if len(fitting) > 1:
        some = ", ".join(line.run_id[:8] for line in fitting[:3])
        raise UserError(f"{len(fitting)} runs fit {wanted!r} ({some}, ...): give more of the id")
    return store.patiently(store.client().get_run, fitting[0].run_id)


def _json(text: str | None) -> dict[str, object]:
    try:
        value = json.loads(text or "{}")
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}


def was_reused(line: RunLine) -> bool:
    """Whether the step was not run again but taken from an earlier run."""
    return tags.REUSED in line.tags

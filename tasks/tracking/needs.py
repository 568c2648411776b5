"""Runs that registered versions depend on, and LoggedModels that are not registered, for `rewardflow gc`."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from tasks.tracking import lineage, registry, state_folder, store, tags
from tasks.tracking.runs import PARENT_TAG

if TYPE_CHECKING:
    from mlflow.entities import Run


@dataclass(frozen=True)
class Need:
    """A registered version that needs a run's outputs."""

    why: str
    lasting: bool
    """Whether that version has an alias or ever was champion."""


@dataclass(frozen=True)
class Unregistered:
    """A LoggedModel that is not a version of a registered model."""

    model_id: str
    name: str
    run_id: str
    created: datetime
    location: str
    """Address of its artifacts."""
    is_from_this_folder: bool
    """Whether its run surely was made with the state folder in use; only that folder knows whether steps need it."""


def needed_runs() -> dict[str, Need]:
    """Return run id -> need, for every run behind a registered version: the flow's, its steps' and the reused ones.

    If several versions need a run, lasting needs take precedence. A version needs the stages that it was trained on
    from.
    """
    needs: dict[str, Need] = {}
    listed = [version for name in registry.model_names() for version in registry.versions(name)]
    own = {(version.name, version.version): _need(version) for version in listed}
    for version in listed:  # the stages of a lasting version last too
        need = own[version.name, version.version]
        for stage in lineage.stages_of(version) if need.lasting else ():
            if not own[stage.name, stage.version].lasting:
                reason = f"{stage.name} version {stage.version}, from which {need.why} was trained"
                own[stage.name, stage.version] = Need(reason, lasting=True)
    for version in listed:
        need = own[version.name, version.version]
        facts = registry.facts_of(version)
        runs = {version.run_id, facts.get(tags.EVALUATION_RUN, ""), *_family(facts.get(tags.RUN, ""))} - {""}
        for run_id in runs:
            if run_id not in needs or (need.lasting and not needs[run_id].lasting):
                needs[run_id] = need
    return needs


def unregistered_models() -> list[Unregistered]:
    """Return the LoggedModels of Rewardflow's runs that are not registered versions, oldest first."""
    versions = {version.model_id for name in registry.model_names() for version in registry.versions(name)}
    experiments = [entry.experiment_id for entry in store.all_pages(store.client().search_experiments)]
    oldest = [{"field_name": "creation_timestamp", "ascending": True}]
    there = store.all_pages(store.client().search_logged_models, experiments, order_by=oldest)
    return [
        Unregistered(
            model_id=str(model.model_id),
            name=str(model.name),
            run_id=str(model.source_run_id),
            created=datetime.fromtimestamp(model.creation_timestamp / 1000, tz=UTC),
            location=str(model.artifact_location),
            is_from_this_folder=state_folder.is_from_this_folder(run.data.tags),
        )
        for model in there
        if model.model_id not in versions and (run := _own_run(str(model.source_run_id or ""))) is not None
    ]


def is_ours(run_id: str) -> bool:
    """Return whether a run exists in the store in use and was written by Rewardflow."""
    return _own_run(run_id) is not None


def _own_run(run_id: str) -> Run | None:
    run = lineage.run_or_none(run_id)
    return run if run is not None and tags.STARTED in run.data.tags else None


def delete_model(model: Unregistered) -> None:
    """Delete a LoggedModel with its artifacts; its run and everything recorded there is kept."""
    from mlflow.store.artifact.artifact_repository_registry import get_artifact_repository

    store.patiently(store.client().delete_logged_model, model.model_id)
    get_artifact_repository(model.location).delete_artifacts()  # type: ignore[no-untyped-call]


def _need(version: registry.VersionInfo) -> Need:
    called = f"{version.name} version {version.version}"
    if version.aliases:
        return Need(f"{called} ({', '.join(version.aliases)})", lasting=True)
    if tags.PROMOTED_AT in version.tags:
        return Need(f"{called}, which was champion", lasting=True)
    return Need(called, lasting=False)


def _family(flow_run: str) -> set[str]:
    """Return a flow's run, the runs of its steps, and the runs whose results these reused."""
    run = lineage.run_or_none(flow_run)
    if run is None:
        return set()
    steps = store.all_pages(
        store.client().search_runs, [run.info.experiment_id], f"tags.`{PARENT_TAG}` = '{flow_run}'", max_results=1000
    )
    return {flow_run, *(step.info.run_id for step in steps), *(step.data.tags.get(tags.REUSED, "") for step in steps)}

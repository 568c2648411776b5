"""All recorded facts about a model version or a flow's run, for comparisons and reproductions.

A version's weights may have been made in another run than the one that registered it, which reused them unchanged. The
machine is the one of the run that made them; recipe, code and data are those of the run that registered them.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from models.base.errors import UserError
from tasks.host.code_version import DIRTY
from tasks.tracking import records, registry, store, summaries, tags
from tasks.tracking.lineage import run_or_none
from tasks.tracking.registry import VersionInfo
from tasks.tracking.runs import PARENT_TAG
from tasks.tracking.summaries import DataLink, NoSuchRunError, data_of

if TYPE_CHECKING:
    from mlflow.entities import Run

RECORDS = "evaluation/records.parquet"
"""Artifact of an evaluation's run: the policy's answers."""
EVALUATED, FITTED = ("evaluate candidate", "evaluate champion"), "fine_tune"
"""Names of the steps' runs that are read: of the evaluations, the first that exists; and the fine-tuning."""
_ADDRESS = re.compile(r"(?:models:/)?(?P<name>[^/@]+)(?:/(?P<version>[1-9][0-9]*)|@(?P<alias>[^/@]+))")


@dataclass(frozen=True)
class VersionRecord:
    """All that the tracking store has recorded about a version or a flow's run."""

    label: str
    """Display name."""
    version: VersionInfo | None
    """The version; None if a run was requested."""
    run: str
    """MLflow run of the flow that registered the version, or the requested flow's run."""
    status: str
    """Status of that run: RUNNING, FINISHED, FAILED or KILLED."""
    trained_in: str
    """MLflow run of the flow in which the weights were made; the same, unless they were taken from an earlier one."""
    facts: Mapping[str, str] = field(repr=False)
    """Tags of the flow's run, overridden by all recorded facts about the version."""
    params: Mapping[str, str] = field(repr=False)
    """The recipe, key by key."""
    data: tuple[DataLink, ...] = field(repr=False)
    """Data that the flow read."""
    evaluation: str
    """MLflow run of the evaluation on problems that people may look at; empty if there was none."""
    metrics: Mapping[str, float] = field(repr=False)
    """Metrics of that evaluation."""

    @property
    def commit(self) -> str:
        """Commit of the code, without the mark of uncommitted changes."""
        return self.facts.get(tags.GIT_COMMIT, "").removesuffix(DIRTY)

    @property
    def dirty(self) -> bool:
        """Whether the code differed from that commit."""
        return self.facts.get(tags.GIT_COMMIT, "").endswith(DIRTY)

    @property
    def prepared(self) -> dict[str, DataLink]:
        """The prepared Parquet files that the flow read, by their path in the repository."""
        return {link.source: link for link in self.data if link.source.endswith(".parquet")}


def recorded(wanted: str, model: Callable[[], str]) -> VersionRecord:
    """Return everything recorded about a version or run, given by number, alias, address, name or id.

    Args:
        wanted: number of a version, an alias such as champion, NAME/VERSION, NAME@ALIAS, or a run, as
            `summaries.run_summary` takes it.
        model: returns the registered model that is meant if `wanted` names none.

    Raises:
        UserError: the version, alias or run does not exist.
    """
    version = _version(wanted, model)
    if version is not None:
        return of_version(version)
    try:
        summary = summaries.run_summary("", wanted)
    except NoSuchRunError:
        raise UserError(
            f"no version, alias or run {wanted!r}; `rewardflow models` and `rewardflow runs` list those that there are"
        ) from None
    run = store.patiently(store.client().get_run, summary.line.run_id)
    return of_run(str(run.data.tags.get(PARENT_TAG) or run.info.run_id))


def of_version(version: VersionInfo) -> VersionRecord:
    """Return everything recorded about a version.

    Raises:
        UserError: the run that registered it is gone.
    """
    facts = registry.facts_of(version)
    label = f"{version.name} version {version.version}"
    fitted = run_or_none(version.run_id)
    flow = run_or_none(facts.get(tags.RUN, "") or _parent(fitted))
    if flow is None:
        raise UserError(f"{label}: the run that made it is not in the tracking store, so nothing more is known of it")
    evaluated = run_or_none(facts.get(tags.EVALUATION_RUN, ""))
    return _recorded(label, version, flow, _parent(fitted), evaluated, facts)


def of_run(run_id: str) -> VersionRecord:
    """Return everything recorded about a flow's run, and about the runs that made the results it reused."""
    summary = summaries.run_summary("", run_id)
    made = {step.name: step.tags.get(tags.REUSED, step.run_id) for step in summary.steps}
    fitted = run_or_none(made.get(FITTED, ""))
    evaluated = run_or_none(next((made[name] for name in EVALUATED if name in made), ""))
    flow = store.patiently(store.client().get_run, summary.line.run_id)
    label = f"run {run_id[:8]} ({summary.line.name})"
    known = fitted.data.tags if fitted is not None else {}
    judge = {key: known[key] for key in (tags.REWARD_MODEL_VERSION,) if key in known}  # of a version, it is on record
    return _recorded(label, None, flow, _parent(fitted), evaluated, judge)


def read_text(run_id: str, path: str) -> str:
    """Read a run's artifact as text; empty if the run or the artifact does not exist."""
    with tempfile.TemporaryDirectory() as scratch:
        file = records.fetch_artifact(run_id, path, Path(scratch))
        return file.read_text(encoding="utf-8") if file is not None and file.is_file() else ""


def _recorded(
    label: str, version: VersionInfo | None, flow: Run, trained_in: str, evaluated: Run | None, facts: Mapping[str, str]
) -> VersionRecord:
    shown = {key: value for key, value in flow.data.tags.items() if not key.startswith("mlflow.")}
    return VersionRecord(
        label=label,
        version=version,
        run=flow.info.run_id,
        status=flow.info.status,
        trained_in=trained_in or flow.info.run_id,
        facts={**shown, **facts},
        params=dict(flow.data.params),
        data=data_of(flow),
        evaluation=evaluated.info.run_id if evaluated is not None else "",
        metrics=dict(sorted(evaluated.data.metrics.items())) if evaluated is not None else {},
    )


def _version(wanted: str, model: Callable[[], str]) -> VersionInfo | None:
    """Return the version that `wanted` names; None if it does not have the form of a version or an alias."""
    if re.fullmatch("[1-9][0-9]{0,5}", wanted):
        return registry.version_info(model(), int(wanted))
    if parts := _ADDRESS.fullmatch(wanted):
        if parts["version"]:
            return registry.version_info(parts["name"], int(parts["version"]))
        return _by_alias(parts["name"], parts["alias"])
    if wanted in (registry.CHAMPION, registry.CANDIDATE, registry.PREVIOUS, registry.ANCHOR):
        return _by_alias(model(), wanted)
    return None


def _by_alias(name: str, alias: str) -> VersionInfo:
    version = registry.by_alias(name, alias)
    if version is None:
        raise UserError(
            f"model {name!r} has no version with the alias {alias}; `rewardflow models` lists what there is"
        )
    return version


def _parent(run: Run | None) -> str:
    return str(run.data.tags.get(PARENT_TAG, "")) if run is not None else ""

"""The lineage of a model version, from the hashes of the raw data to its aliases, by queries to MLflow alone.

    version -> its run -> data set inputs of that run and of its flow; LoggedModel inputs -> reward model version ->
    its run and data; facts of the version -> recipe, commit, evaluation run -> metrics, checks of the gate; aliases.

Nothing is read from the checkout or the state folder, so it prints the same on any machine that reaches the server.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from models.base.errors import UserError
from tasks.tracking import registry, store, tags
from tasks.tracking.registry import VersionInfo
from tasks.tracking.runs import PARENT_TAG
from tasks.tracking.summaries import DataLink, data_of
from tasks.tracking.verdict_record import VerdictRecord, verdict_of
from tasks.tracking.verdict_text import verdict_text

if TYPE_CHECKING:
    from mlflow.entities import Run


@dataclass(frozen=True)
class VersionOrigin:
    """A registered model version and the run that made it."""

    version: VersionInfo
    facts: Mapping[str, str]
    """All recorded facts about the version: tags and record."""
    run_name: str
    data: tuple[DataLink, ...]
    """Data that the run and its flow read, raw data first."""
    models_read: tuple[str, ...]
    """LoggedModels that the run read and that are not registered versions, such as the warm start: "name (id)"."""


@dataclass(frozen=True)
class Lineage:
    """The lineage of one version. Values that a run did not record are None or empty, and are shown as missing."""

    policy: VersionOrigin
    reward_model: VersionOrigin | None
    reward_model_read: bool
    """Whether the policy's run has the reward model among its inputs, and not only in a tag."""
    evaluation_run: str
    evaluation: Mapping[str, float]
    """Metrics of the evaluation run."""
    verdict: VerdictRecord | None
    """The gate's verdict on the version."""
    stages: tuple[VersionOrigin, ...] = ()
    """Versions of other models that the policy was trained on from, one after the other, the first stage first."""

    @property
    def data(self) -> tuple[DataLink, ...]:
        """The data behind policy and reward model, each once, raw data first."""
        both = [*self.policy.data, *(self.reward_model.data if self.reward_model else ())]
        return tuple(sorted(dict.fromkeys(both), key=lambda link: (link.context != "raw", link.context, link.name)))


def lineage(name: str, version: int) -> Lineage:
    """Return the lineage of version `version` of the registered model `name`.

    Raises:
        UserError: the version does not exist.
    """
    policy = registry.version_info(name, version)
    facts = registry.facts_of(policy)
    run = run_or_none(policy.run_id)
    models_read = _models_read(run)
    reward_model = _find_version(facts.get(tags.REWARD_MODEL_VERSION, ""))
    other_models = tuple(
        label for model_id, label in models_read.items() if not reward_model or model_id != reward_model.model_id
    )
    evaluation_run = facts.get(tags.EVALUATION_RUN, "")
    evaluated_run = run_or_none(evaluation_run)
    return Lineage(
        policy=VersionOrigin(policy, facts, _name(run), _data_of_run(run), other_models),
        reward_model=_origin(reward_model) if reward_model else None,
        reward_model_read=reward_model is not None and reward_model.model_id in models_read,
        evaluation_run=evaluation_run,
        evaluation=dict(sorted(evaluated_run.data.metrics.items())) if evaluated_run else {},
        verdict=verdict_of(facts),
        stages=tuple(_origin(stage) for stage in stages_of(policy)),
    )


def stages_of(version: VersionInfo) -> list[VersionInfo]:
    """Return the versions of other models that a version was trained on from, the first stage first.

    An earlier version of the same model (`policy.base: champion`) is not a stage and ends the list, as does a version
    that was deleted.
    """
    stages: list[VersionInfo] = []
    names = {version.name}
    while stage := _version_or_none(registry.facts_of(version).get(tags.BASE_VERSION, "")):
        if stage.name in names:
            break
        stages.append(stage)
        names.add(stage.name)
        version = stage
    return stages[::-1]


def render(chain: Lineage, metrics_shown: int = 12) -> str:
    """Format a lineage as a tree for a terminal."""
    policy, policy_facts = chain.policy.version, chain.policy.facts
    raw = [link for link in chain.data if link.context == "raw"]
    prepared = [link for link in chain.data if link.context != "raw"]
    lines = [f"{policy.name} version {policy.version}" + _in_brackets(policy.aliases)]
    sections: list[tuple[str, list[str]]] = [
        ("raw data", [_raw_line(link) for link in raw]),
        ("prepared data", [_data_line(link) for link in prepared]),
    ]
    for origin in chain.stages:
        title = f"stage {origin.version.name} version {origin.version.version}{_in_brackets(origin.version.aliases)}"
        data_lines = [_data_line(link) for link in origin.data if link.context != "raw"]
        shown_facts = (("recipe", tags.RECIPE), ("seed", tags.SEED), ("trained on from", tags.BASE_VERSION))
        sections.append((title, _fact_lines(origin, shown_facts) + data_lines))
    if chain.reward_model:
        version = chain.reward_model.version
        pin_note = (
            "" if chain.reward_model_read else " (pinned by tag only: the policy's run does not list it as an input)"
        )
        sections.append(
            (
                f"reward model {version.name} version {version.version}{_in_brackets(version.aliases)}{pin_note}",
                _fact_lines(chain.reward_model, (("held-out pair accuracy", tags.HELDOUT_ACCURACY),)),
            )
        )
    else:
        sections.append(("reward model", []))
    fact_tags = (
        ("recipe", tags.RECIPE),
        ("recipe sha256", tags.RECIPE_SHA256),
        ("git commit", tags.GIT_COMMIT),
        ("release", tags.RELEASE),
        ("data revision", tags.DATA_REVISION),
        ("seed", tags.SEED),
        ("merged from", tags.MERGED_FROM),
        ("trained on from", tags.BASE_VERSION),
        ("base model", tags.BASE_SOURCE),
    )
    models_read = [f"starts from {label}" for label in chain.policy.models_read]
    sections.append((f"policy version {policy.version}", _fact_lines(chain.policy, fact_tags) + models_read))
    metric_lines = [f"{key} = {value:.4g}" for key, value in list(chain.evaluation.items())[:metrics_shown]]
    if len(chain.evaluation) > metrics_shown:
        metric_lines.append(f"... and {len(chain.evaluation) - metrics_shown} more")
    comparison_lines = [
        f"{label}: {policy_facts[key]}"
        for label, key in (("compared with", tags.COMPARED_WITH), ("difference", tags.IMPROVEMENT))
        if key in policy_facts
    ]
    run = f" (run {chain.evaluation_run})" if chain.evaluation_run else ""
    sections.append((f"evaluation{run}", comparison_lines + metric_lines))
    checks = [
        f"{'FAILED' if check.state == 'failed' else check.state.replace('_', ' ')}  {check.name}: {check.detail}"
        for check in (chain.verdict.checks if chain.verdict is not None else ())
    ]
    sections.append((f"gate: {verdict_text(chain.verdict)}" if chain.verdict is not None else "gate", checks))
    alias_lines = [
        f"{key.removeprefix('rewardflow.')}: {policy_facts[key]}" for key in _ALIAS_FACTS if key in policy_facts
    ]
    sections.append((f"aliases: {', '.join(policy.aliases) or 'none'}", alias_lines))
    for index, (title, section_lines) in enumerate(sections):
        last = index == len(sections) - 1
        lines.append(f"{'└─' if last else '├─'} {title}{'' if section_lines or ':' in title else ': not recorded'}")
        for number, line in enumerate(section_lines):
            branch = "└─" if number == len(section_lines) - 1 else "├─"
            lines.append(f"{'   ' if last else '│  '}{branch} {line}")
    return "\n".join(lines)


_ALIAS_FACTS = (tags.PROMOTED_AT, tags.PROMOTED_BY, tags.REPLACED, tags.REPLACED_BY)


def _origin(version: VersionInfo) -> VersionOrigin:
    run = run_or_none(version.run_id)
    return VersionOrigin(
        version, registry.facts_of(version), _name(run), _data_of_run(run), tuple(_models_read(run).values())
    )


def _version_or_none(text: str) -> VersionInfo | None:
    with suppress(UserError):
        return _find_version(text)
    return None


def _find_version(text: str) -> VersionInfo | None:
    name, _, version = text.rpartition("/")
    return registry.version_info(name, int(version)) if name and version.isdigit() else None


def run_or_none(run_id: str) -> Run | None:
    from mlflow import MlflowException

    if not run_id:
        return None
    try:
        return store.patiently(store.client().get_run, run_id)
    except MlflowException as error:
        if error.error_code == "RESOURCE_DOES_NOT_EXIST":  # deleted for good: the chain shows what is left
            return None
        raise


def _data_of_run(run: Run | None) -> tuple[DataLink, ...]:
    """Return the data sets of a run and of its parent, the flow's run."""
    if run is None:
        return ()
    parent = run_or_none(run.data.tags.get(PARENT_TAG, ""))
    links: Iterable[DataLink] = (*data_of(run), *(data_of(parent) if parent else ()))
    return tuple(dict.fromkeys(links))


def _models_read(run: Run | None) -> dict[str, str]:
    """Return the LoggedModels that a run read: id -> label."""
    labels = {}
    for entry in run.inputs.model_inputs if run and run.inputs else []:
        model = store.patiently(store.client().get_logged_model, entry.model_id)
        registered = json.loads(model.tags.get(registry.VERSIONS_OF_MODEL, "[]"))
        label = ", ".join(f"{version['name']} version {version['version']}" for version in registered)
        labels[entry.model_id] = label or f"{model.name} ({entry.model_id})"
    return labels


def _fact_lines(origin: VersionOrigin, fact_tags: Iterable[tuple[str, str]]) -> list[str]:
    facts = origin.facts
    lines = [f"run {origin.run_name or 'not found'} ({origin.version.run_id})"]
    lines += [f"{label}: {facts[key]}" for label, key in fact_tags if key in facts]
    if tags.WEIGHTS_SHA256 in facts:
        lines.append(f"weights sha256: {facts[tags.WEIGHTS_SHA256]}")
    return lines


def _raw_line(link: DataLink) -> str:
    return f"{link.source}  md5 {link.digest}" + (f", {link.rows} rows" if link.rows is not None else "")


def _data_line(link: DataLink) -> str:
    rows = f", {link.rows} rows" if link.rows is not None else ""
    revision = f", DVC revision {link.revision}" if link.revision else ""
    kind = "md5" if len(link.digest.removesuffix(".dir")) == 32 else "digest"  # DVC's, or our own of cleaned rows
    return f"{link.name} ({link.context})  {kind} {link.digest}{rows}{revision}"


def _name(run: Run | None) -> str:
    return (run.info.run_name or "") if run else ""


def _in_brackets(aliases: Iterable[str]) -> str:
    text = ", ".join(sorted(aliases))
    return f" [{text}]" if text else ""

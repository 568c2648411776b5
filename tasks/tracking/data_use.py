"""Search for the registered models that used a version of the data, by queries to MLflow alone.

A model learned from the data that its run or its flow's run read, and from all data behind the version that it was
trained on from. Data that were only read for validation or judgement are listed separately.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from models.base.errors import UserError
from tasks.tracking import registry, store, summaries, tags
from tasks.tracking.lineage import run_or_none
from tasks.tracking.registry import VersionInfo
from tasks.tracking.runs import PARENT_TAG

if TYPE_CHECKING:
    from mlflow.entities import Run

LEARNED_FROM = ("raw", "prepared", "training")
"""Contexts of data that a model learned from; in any other context it was only measured on them."""
LEAST = 6
"""Minimum number of digits of a hash that a search accepts."""


@dataclass(frozen=True)
class DataUse:
    """A version that used the data."""

    version: VersionInfo
    learned: bool
    """Whether it learned from the data; otherwise it was only measured on them."""
    data: tuple[str, ...]
    """The parts of the data that were used, such as "arithmetic/problems_train (training)"."""
    through: str = ""
    """NAME/VERSION that it was trained on from and that used the data; empty if the version used the data itself."""


def uses_of(data_hash: str) -> list[DataUse]:
    """Return the model versions that used a version of the data: first those that learned from it, then the others.

    Each group is sorted by model, newest version first.

    Args:
        data_hash: hash of raw or prepared data or of one of their files, or its beginning; or a commit that pins them.

    Raises:
        UserError: `data_hash` is not a hash, or no run read such data.
    """
    prefix = data_hash.removesuffix(".dir").lower()
    if not re.fullmatch(f"[0-9a-f]{{{LEAST},40}}", prefix):
        raise UserError(
            f"{data_hash!r} is not a version of data: give its hash as `rewardflow lineage VERSION` prints it, or the "
            f"first {LEAST} digits or more of it, or of a commit that pins it"
        )
    runs = _runs(f"dataset.digest LIKE '{prefix}%'") or _runs(f"tags.`{tags.DATA_REVISION}` LIKE '{prefix}%'")
    if not runs:
        raise UserError(
            f"no run read data {data_hash}; `rewardflow lineage VERSION` prints what a version learned from"
        )
    parts_by_run = {run.info.run_id: _parts_read(run, prefix) for run in runs}
    versions = [version for name in registry.model_names() for version in registry.versions(name)]
    uses: dict[str, DataUse] = {}
    for version in versions:
        data = dict.fromkeys(entry for run in _runs_of(version) for entry in parts_by_run.get(run, ()))
        if data:
            learned = any(context in LEARNED_FROM for _, context in data)
            parts = tuple(f"{name} ({context})" for name, context in data)
            uses[_name(version)] = DataUse(version, learned, parts)
    _add_successors(uses, versions)
    order = {_name(version): place for place, version in enumerate(versions)}
    return sorted(uses.values(), key=lambda use: (not use.learned, order[_name(use.version)]))


def has_training_on(experiment: str, digest: str) -> bool:
    """Return whether a training of this experiment has begun on prepared data of this hash, however it ended."""
    experiment_runs = _runs(f"dataset.digest = '{digest}'", [store.experiment_id(experiment)])
    return any(link.context == "training" for run in experiment_runs for link in summaries.data_of(run))


def render(data_hash: str, uses: Iterable[DataUse]) -> str:
    """Format the uses for a terminal, one line a version."""
    lines: dict[bool, list[str]] = defaultdict(list)
    for use in uses:
        aliases = f" [{', '.join(sorted(use.version.aliases))}]" if use.version.aliases else ""
        through = f"through {use.through}, which it was trained on from" if use.through else ", ".join(use.data)
        lines[use.learned].append(f"  {use.version.name} version {use.version.version}{aliases}: {through}")
    output = [f"data {data_hash}"]
    for learned, title in ((True, "learned from it:"), (False, "only measured on it:")):
        if lines[learned]:
            output += [title, *lines[learned]]
    return (
        "\n".join(output)
        if len(output) > 1
        else f"data {data_hash}: runs read it, but no registered model came of them"
    )


def _add_successors(uses: dict[str, DataUse], versions: Iterable[VersionInfo]) -> None:
    """Add the versions that were trained on from one that learned from the data, and those trained on from these."""
    flows: dict[str, list[VersionInfo]] = defaultdict(list)
    for version in versions:
        flows[version.tags.get(tags.RUN, "")].append(version)
    bases = [name for name, use in uses.items() if use.learned]
    while bases:
        base = bases.pop()
        for run in _runs(f"tags.`{tags.BASE_VERSION}` = '{base}'") if "'" not in base else ():
            for version in flows.get(run.info.run_id, ()):
                name = _name(version)
                if name not in uses or not uses[name].learned:
                    uses[name] = DataUse(version, learned=True, data=(), through=base)
                    bases.append(name)


def _runs_of(version: VersionInfo) -> list[str]:
    """Return the runs that made a version: the run of its step and the run of its flow."""
    flow = version.tags.get(tags.RUN, "")
    if not flow and (run := run_or_none(version.run_id)) is not None:
        flow = run.data.tags.get(PARENT_TAG, "")
    return [version.run_id, flow]


def _parts_read(run: Run, prefix: str) -> list[tuple[str, str]]:
    """Return name and context of the parts of the data that a run read: all if the run is found by its commit."""
    links = summaries.data_of(run)
    matching = [link for link in links if link.digest.startswith(prefix)]
    return [(link.name, link.context) for link in matching or links]


def _runs(query: str, experiments: Sequence[str] = ()) -> list[Run]:
    """Return the runs that match a query, in these experiments or in all."""
    experiments = experiments or [
        entry.experiment_id for entry in store.all_pages(store.client().search_experiments, max_results=1000)
    ]
    return store.all_pages(store.client().search_runs, list(experiments), query, max_results=1000)


def _name(version: VersionInfo) -> str:
    return f"{version.name}/{version.version}"

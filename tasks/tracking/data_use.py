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


def uses_of(wanted: str) -> list[DataUse]:
    """Return the model versions that used a version of the data: first those that learned from it, then the others.

    Each group is sorted by model, newest version first.

    Args:
        wanted: hash of raw or prepared data or of one of their files, or its beginning; or a commit that pins them.

    Raises:
        UserError: `wanted` is not a hash, or no run read such data.
    """
    begins = wanted.removesuffix(".dir").lower()
    if not re.fullmatch(f"[0-9a-f]{{{LEAST},40}}", begins):
        raise UserError(
            f"{wanted!r} is not a version of data: give its hash as `rewardflow lineage VERSION` prints it, or the "
            f"first {LEAST} digits or more of it, or of a commit that pins it"
        )
    runs = _runs(f"dataset.digest LIKE '{begins}%'") or _runs(f"tags.`{tags.DATA_REVISION}` LIKE '{begins}%'")
    if not runs:
        raise UserError(f"no run read data {wanted}; `rewardflow lineage VERSION` prints what a version learned from")
    read = {run.info.run_id: _read(run, begins) for run in runs}
    known = [version for name in registry.model_names() for version in registry.versions(name)]
    uses: dict[str, DataUse] = {}
    for version in known:
        data = dict.fromkeys(entry for run in _made_by(version) for entry in read.get(run, ()))
        if data:
            learned = any(context in LEARNED_FROM for _, context in data)
            shown = tuple(f"{name} ({context})" for name, context in data)
            uses[_name(version)] = DataUse(version, learned, shown)
    _follow(uses, known)
    order = {_name(version): place for place, version in enumerate(known)}
    return sorted(uses.values(), key=lambda use: (not use.learned, order[_name(use.version)]))


def begun_on(experiment: str, digest: str) -> bool:
    """Return whether a training of this experiment has begun on prepared data of this hash, however it ended."""
    read = _runs(f"dataset.digest = '{digest}'", [store.experiment_id(experiment)])
    return any(link.context == "training" for run in read for link in summaries.data_of(run))


def render(wanted: str, uses: Iterable[DataUse]) -> str:
    """Format the uses for a terminal, one line a version."""
    lines: dict[bool, list[str]] = defaultdict(list)
    for use in uses:
        aliases = f" [{', '.join(sorted(use.version.aliases))}]" if use.version.aliases else ""
        through = f"through {use.through}, which it was trained on from" if use.through else ", ".join(use.data)
        lines[use.learned].append(f"  {use.version.name} version {use.version.version}{aliases}: {through}")
    said = [f"data {wanted}"]
    for learned, title in ((True, "learned from it:"), (False, "only measured on it:")):
        if lines[learned]:
            said += [title, *lines[learned]]
    return "\n".join(said) if len(said) > 1 else f"data {wanted}: runs read it, but no registered model came of them"


def _follow(uses: dict[str, DataUse], known: Iterable[VersionInfo]) -> None:
    """Add the versions that were trained on from one that learned from the data, and those trained on from these."""
    flows: dict[str, list[VersionInfo]] = defaultdict(list)
    for version in known:
        flows[version.tags.get(tags.RUN, "")].append(version)
    waiting = [name for name, use in uses.items() if use.learned]
    while waiting:
        base = waiting.pop()
        for run in _runs(f"tags.`{tags.BASE_VERSION}` = '{base}'") if "'" not in base else ():
            for version in flows.get(run.info.run_id, ()):
                name = _name(version)
                if name not in uses or not uses[name].learned:
                    uses[name] = DataUse(version, learned=True, data=(), through=base)
                    waiting.append(name)


def _made_by(version: VersionInfo) -> list[str]:
    """Return the runs that made a version: the run of its step and the run of its flow."""
    flow = version.tags.get(tags.RUN, "")
    if not flow and (run := run_or_none(version.run_id)) is not None:
        flow = run.data.tags.get(PARENT_TAG, "")
    return [version.run_id, flow]


def _read(run: Run, begins: str) -> list[tuple[str, str]]:
    """Return name and context of the parts of the data that a run read: all if the run is found by its commit."""
    links = summaries.data_of(run)
    fitting = [link for link in links if link.digest.startswith(begins)]
    return [(link.name, link.context) for link in fitting or links]


def _runs(query: str, experiments: Sequence[str] = ()) -> list[Run]:
    """Return the runs that match a query, in these experiments or in all."""
    experiments = experiments or [
        entry.experiment_id for entry in store.all_pages(store.client().search_experiments, max_results=1000)
    ]
    return store.all_pages(store.client().search_runs, list(experiments), query, max_results=1000)


def _name(version: VersionInfo) -> str:
    return f"{version.name}/{version.version}"

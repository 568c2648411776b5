"""Checks of `rewardflow reproduce` before the training, and the formatting of its output."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from models.base.errors import UserError
from models.policies.folder import is_registered
from models.policies.threads import set_threads
from models.recipes.files import require_files
from tasks.registered import reproducible, reproduction
from tasks.registered.base import named_version, source_line
from tasks.registered.files import registered_files
from tasks.registered.recorded_recipe import read_recorded_recipe
from tasks.registered.reproduction import Surroundings
from tasks.steps.promote import policy_name
from tasks.tracking import recorded, tags

if TYPE_CHECKING:
    from models.learner.precision import Precision
    from models.recipes.schema import Recipe
    from tasks.registered.reproduction import Reproduction
    from tasks.tracking.recorded import VersionRecord

MOST = 10
"""Maximum number of tensors and of metrics that are printed."""


@dataclass(frozen=True)
class ReproducibleVersion:
    """A registered version that can be trained again on this machine, with its recipe and model folder."""

    record: VersionRecord
    recipe: Recipe
    """The recipe as recorded: its file with its overrides applied."""
    to_train: Recipe
    """The same recipe with its base model given as a folder."""
    precisions: dict[str, Precision]
    """See `tasks.registered.reproducible.recorded_precisions`."""
    data: str
    original: Path
    """Model folder of the version."""
    surroundings: Surroundings


def reproducible_version(version: str, model: Callable[[], str], root: Path) -> ReproducibleVersion:
    """Return everything that is needed to train a version again.

    Raises:
        UserError: it cannot be trained again here; the message gives the reason and a remedy.
    """
    record = recorded.recorded(version, model)
    if record.version is None:
        raise UserError(
            f"{version}: {record.label} is not a version; `rewardflow models` lists those that can be made again"
        )
    reproducible.require_reproducible(record, root)
    recipe, file = read_recorded_recipe(record)
    reproducible.require_recipe(record, recipe, file, root)
    reproducible.require_exact(record, recipe)
    data = reproducible.require_data(record, recipe, root)
    policy = recipe.policy
    if is_registered(policy.base):
        base = named_version(policy.named_base or "", policy_name(recipe))
        policy = replace(policy, base=str(registered_files(base).folder))
    to_train = recipe.model_copy(update={"policy": policy})
    require_files(to_train)
    recorded_source, current_source = record.facts.get(tags.BASE_SOURCE, ""), source_line(to_train)
    if recorded_source and current_source != recorded_source:
        raise UserError(
            f"{record.label} was trained from {recorded_source}, but policy.base is now {current_source or policy.base}"
        )
    original = registered_files(record.version).folder
    set_threads(to_train.policy)
    precisions, around = reproducible.recorded_precisions(record), reproduction.surroundings_of(record, root)
    return ReproducibleVersion(record, recipe, to_train, precisions, data, original, around)


def warning(around: Surroundings) -> str:
    """Return one line with differences of the machine that may change results bit for bit; empty if there are none."""
    if not around.deciding:
        return ""
    facts = "; ".join(
        f"{entry.name} {entry.before} -> {entry.after}" if len(entry.before + entry.after) < 60 else entry.name
        for entry in around.deciding
    )
    return f"not as it was, so bits may differ: {facts}"


def reproduction_lines(result: Reproduction) -> str:
    """Format the comparison with the original as lines, the last of which is the verdict."""
    from flows.difference import setting_lines

    lines = [f"{result.version}, made again at commit {result.commit[:8]} with data {result.data[:8]}"]
    if result.same_weights:
        lines.append(f"weights: identical, {result.tensors} tensors, sha256 {result.made_sha256}")
    else:
        lines.append(f"weights: {len(result.gaps)} of {result.tensors} tensors differ")
        lines += [f"  on record sha256 {result.recorded_sha256}", f"  made      sha256 {result.made_sha256}"]
        lines += [f"  {gap}" for gap in result.gaps[:MOST]]
        lines += [f"  ... and {len(result.gaps) - MOST} more"] if len(result.gaps) > MOST else []
    if result.files:
        lines.append(f"other files that differ: {', '.join(result.files)}")
    within = f"within {result.tolerance:g}"
    if result.metrics:
        lines.append(f"metrics: {len(result.metrics)} of {result.compared} are not {within}")
        lines += [f"  {gap.name}: {_number(gap.before)} -> {_number(gap.after)}" for gap in result.metrics[:MOST]]
    elif result.compared:
        lines.append(f"metrics: {result.compared} the same {within}")
    for title, settings in (("recipe", result.recipe), ("packages", result.packages), ("machine", result.machine)):
        lines += setting_lines(title, settings)
    return "\n".join([*lines, *result.notes, "identical" if result.identical else "differs"])


def as_json(result: Reproduction) -> str:
    """Return the whole result with the verdict as JSON."""
    return json.dumps({"identical": result.identical, **asdict(result)}, indent=1, ensure_ascii=False)


def _number(value: float | None) -> str:
    return "none" if value is None else f"{value:.6g}"

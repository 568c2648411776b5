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
from tasks.registered.recorded_recipe import read_asked
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

    said: VersionRecord
    recipe: Recipe
    """The recipe as recorded: its file with its overrides applied."""
    to_train: Recipe
    """The same recipe with its base model given as a folder."""
    precisions: dict[str, Precision]
    """See `tasks.registered.reproducible.recorded_precisions`."""
    data: str
    original: Path
    """Model folder of the version."""
    around: Surroundings


def wanted_version(version: str, model: Callable[[], str], root: Path) -> ReproducibleVersion:
    """Return everything that is needed to train a version again.

    Raises:
        UserError: it cannot be trained again here; the message gives the reason and a remedy.
    """
    said = recorded.recorded(version, model)
    if said.version is None:
        raise UserError(
            f"{version}: {said.label} is not a version; `rewardflow models` lists those that can be made again"
        )
    reproducible.require_reproducible(said, root)
    recipe, file = read_asked(said)
    reproducible.require_recipe(said, recipe, file, root)
    reproducible.require_exact(said, recipe)
    data = reproducible.require_data(said, recipe, root)
    policy = recipe.policy
    if is_registered(policy.base or ""):
        base = named_version(policy.base or "", policy_name(recipe))
        policy = replace(policy, base=str(registered_files(base).folder))
    to_train = recipe.model_copy(update={"policy": policy})
    require_files(to_train)
    made_from, here = said.facts.get(tags.BASE_SOURCE, ""), source_line(to_train)
    if made_from and here != made_from:
        raise UserError(f"{said.label} was trained from {made_from}, but policy.base is now {here or policy.base}")
    original = registered_files(said.version).folder
    set_threads(to_train.policy)
    precisions, around = reproducible.recorded_precisions(said), reproduction.surroundings_of(said, root)
    return ReproducibleVersion(said, recipe, to_train, precisions, data, original, around)


def warning(around: Surroundings) -> str:
    """Return one line with differences of the machine that may change results bit for bit; empty if there are none."""
    if not around.deciding:
        return ""
    facts = "; ".join(
        f"{entry.name} {entry.before} -> {entry.after}" if len(entry.before + entry.after) < 60 else entry.name
        for entry in around.deciding
    )
    return f"not as it was, so bits may differ: {facts}"


def reproduction_lines(made: Reproduction) -> str:
    """Format the comparison with the original as lines, the last of which is the verdict."""
    from flows.difference import setting_lines

    lines = [f"{made.version}, made again at commit {made.commit[:8]} with data {made.data[:8]}"]
    if made.same_weights:
        lines.append(f"weights: identical, {made.tensors} tensors, sha256 {made.made_sha256}")
    else:
        lines.append(f"weights: {len(made.gaps)} of {made.tensors} tensors differ")
        lines += [f"  on record sha256 {made.recorded_sha256}", f"  made      sha256 {made.made_sha256}"]
        lines += [f"  {gap}" for gap in made.gaps[:MOST]]
        lines += [f"  ... and {len(made.gaps) - MOST} more"] if len(made.gaps) > MOST else []
    if made.files:
        lines.append(f"other files that differ: {', '.join(made.files)}")
    within = f"within {made.tolerance:g}"
    if made.metrics:
        lines.append(f"metrics: {len(made.metrics)} of {made.compared} are not {within}")
        lines += [f"  {gap.name}: {_number(gap.before)} -> {_number(gap.after)}" for gap in made.metrics[:MOST]]
    elif made.compared:
        lines.append(f"metrics: {made.compared} the same {within}")
    for title, settings in (("recipe", made.recipe), ("packages", made.packages), ("machine", made.machine)):
        lines += setting_lines(title, settings)
    return "\n".join([*lines, *made.notes, "identical" if made.identical else "differs"])


def as_json(made: Reproduction) -> str:
    """Return the whole result with the verdict as JSON."""
    return json.dumps({"identical": made.identical, **asdict(made)}, indent=1, ensure_ascii=False)


def _number(value: float | None) -> str:
    return "none" if value is None else f"{value:.6g}"

"""Checks that a registered version can be made again here, and provision of its data and recorded precisions.

Nothing here writes to the registry.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import cast, get_args

from models.base.errors import UserError
from models.datasets.built_in import BUILT_IN
from models.datasets.settings import DataSettings
from models.learner.precision import Precision
from models.recipes.held_out import held_out_recipes
from models.recipes.schema import Recipe
from tasks.data.data_sources import prepared_folder
from tasks.data.versions import digest_of, prepare, pull
from tasks.host.code_version import NO_COMMIT, ask_git, code_version, running_version
from tasks.tracking import summaries, tags
from tasks.tracking.lineage import run_or_none
from tasks.tracking.recorded import VersionRecord


def require_reproducible(record: VersionRecord, root: Path) -> None:
    """Check that the checkout is exactly the code that a version was made with.

    Raises:
        UserError: its run has not finished, its code was in no commit, another commit is checked out, or the work tree
            differs from it.
    """
    if record.status != "FINISHED":
        raise UserError(
            f"{record.label}: its run {record.run[:8]} is {record.status} and not FINISHED, so nothing can be compared "
            "with it"
        )
    if merged := record.facts.get(tags.MERGED_FROM, ""):
        raise UserError(f"{record.label} was not trained but merged ({merged}); `rewardflow merge` makes it again")
    if not record.commit or record.commit == NO_COMMIT:
        raise UserError(f"{record.label}: its run has no commit of the code on record, so it cannot be made again")
    if record.dirty:
        raise UserError(
            f"{record.label}: commit {record.commit[:8]} did not hold the code that made it, so it cannot be made again"
        )
    checkout = code_version(root)
    if checkout.commit != record.commit:
        _, unknown = ask_git(root, "cat-file", "-e", f"{record.commit}^{{commit}}")
        fetch = "git fetch && " if unknown else ""
        raise UserError(
            f"{record.label} was made at commit {record.commit[:8]}, checked out is {checkout.commit[:8]}; "
            f"`{fetch}git checkout {record.commit}`"
        )
    if checkout.unpinned:
        raise UserError(f"{record.label}: {checkout.unpinned}; `git stash -u` puts that aside")


def require_recipe(record: VersionRecord, recipe: Recipe, file: Path, root: Path) -> None:
    """Check that the commit contains the running code, the recipe's file and the user's files that it names.

    Raises:
        UserError: it does not.
    """
    running = running_version(root, file, given=[source.file for source in recipe.sources])
    if running.unpinned:
        raise UserError(f"{record.label}: {running.unpinned}")
    recorded = record.facts.get(tags.RELEASE, "")
    if recorded != running.release:
        raise UserError(
            f"{record.label} was made by {recorded or 'a clone'}, this is {running.release or 'a clone'}; install the "
            "release that made it"
        )


def require_exact(record: VersionRecord, recipe: Recipe) -> None:
    """Check that a recipe's training ends with the same bits each time.

    Raises:
        UserError: completions are learned from in the order of their arrival.
    """
    if recipe.schedule is not None and recipe.schedule.staleness >= 2:
        raise UserError(
            f"{record.label}: its schedule.async is {recipe.schedule.staleness}: it learned from completions as they "
            "came, in an order that no second run has; 0 and 1 can be made again"
        )


def require_data(record: VersionRecord, recipe: Recipe, root: Path) -> str:
    """Put a version's training data and held-out sets into the work tree, with DVC; return the training data's hash.

    Missing data are pulled.

    Returns the hash of the data that it learned from.

    Raises:
        UserError: the commit pins other data, or neither this clone nor the remote has them.
    """
    for held_out in held_out_recipes(recipe).values():  # the held-out rows were not learned from
        _require_data_set(record, held_out.data, "held out", root)
    return _require_data_set(record, recipe.data, "prepared", root)


def _require_data_set(record: VersionRecord, settings: DataSettings, context: str, root: Path) -> str:
    """Put one data set into the work tree, at the version that the run recorded in a context; return its hash."""
    name = settings.name
    recorded_digest = next((link.digest for link in record.data if (link.name, link.context) == (name, context)), "")
    if not recorded_digest:
        raise UserError(f"{record.label}: the data {name} that it was made with are not on record")
    missing = f"{record.label}: data version {recorded_digest[:8]} of {name} is missing"
    pinned_digest = digest_of(name, root)
    if pinned_digest != recorded_digest:
        raise UserError(f"{missing}: commit {record.commit[:8]} pins version {pinned_digest[:8]}")
    try:
        pull(root, name, report=_ignore_line)
    except UserError as error:  # the remote may be unreachable or empty: local data, or made by code, are equivalent
        if name not in BUILT_IN and not (root / prepared_folder(name)).is_dir():
            raise UserError(f"{missing}: {error}") from None
    try:
        prepared = prepare(settings, root, _ignore_line)
    except UserError as error:
        raise UserError(f"{missing}: {error}") from None
    if prepared.digest != recorded_digest:
        raise UserError(f"{missing}: what lies here prepares to version {prepared.digest[:8]}")
    return recorded_digest


def recorded_precisions(record: VersionRecord) -> dict[str, Precision]:
    """Return shape of a model -> the precision in which the version's run trained models of that shape.

    For a step that reused an earlier result, it is recorded on the run that made the result.
    """
    steps = summaries.run_summary("", record.trained_in).steps
    tags_of_steps: list[Mapping[str, str]] = []
    for step in steps:
        source_run = run_or_none(step.tags.get(tags.REUSED, ""))
        tags_of_steps.append(source_run.data.tags if source_run is not None else step.tags)
    return {
        step_tags[tags.PRECISION_OF]: cast(Precision, step_tags[tags.PRECISION])
        for step_tags in tags_of_steps
        if step_tags.get(tags.PRECISION) in get_args(Precision) and tags.PRECISION_OF in step_tags
    }


def _ignore_line(line: str) -> None:
    """Ignore a line that DVC prints: it is not part of the answer."""

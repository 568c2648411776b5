"""Training on from a registered version: `champion`, `models:/NAME/VERSION`, `models:/NAME@ALIAS`, or that of a stage.

An alias is resolved once, when a run begins, and recorded in the state folder until the run is over: a run that was
stopped continues from the version that it began with, even if the champion has changed since. The content of a version
is identified by the hash of its files, as for any base.

A stage (`policy.base: {recipe: NAME}`) is a run of its own, which ends with a version. The version of a stage that ends
before reinforcement learning has no verdict.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from models.base.atomic_write import write_file
from models.base.errors import UserError, shortened
from models.policies.base_models.source import read_source
from models.policies.build import StageSettings
from models.policies.folder import CHAMPION, MODELS, given_folder, is_registered
from models.recipes.load import digest, plain
from models.recipes.schema import Recipe
from models.recipes.stages import stages_before
from tasks.registered.files import registered_files
from tasks.runner.step import StepResult
from tasks.steps.promote import policy_name
from tasks.tracking import registry, runs, tags

_ADDRESS = re.compile(rf"{re.escape(MODELS)}(?P<name>[^/@]+)(?:/(?P<version>[1-9][0-9]*)|@(?P<alias>[^/@]+))")


@dataclass(frozen=True)
class Base:
    """A registered version that a policy starts from."""

    version: registry.VersionInfo
    address: str
    """Its address in the recipe, such as `champion`."""
    resumed: bool = False
    """Whether it is the version that an earlier, stopped run began with."""
    of_stage: bool = False
    """Whether a stage of the recipe's chain made it."""

    @property
    def name(self) -> str:
        """NAME/VERSION."""
        return f"{self.version.name}/{self.version.version}"

    def __str__(self) -> str:
        again = ", as when the stopped run began" if self.resumed else ""
        return f"{self.version.uri}" + (f" ({self.address}{again})" if self.address != self.version.uri else "")


def named_version(base: str, model: str) -> registry.VersionInfo:
    """Return the registered version that an address in `policy.base` refers to now.

    Args:
        base: as in `policy.base`.
        model: registered name of the recipe's own policies, which `champion` refers to.

    Raises:
        UserError: it is not an address, or the version does not exist.
    """
    address = f"{MODELS}{model}@{registry.CHAMPION}" if base == CHAMPION else base
    parts = _ADDRESS.fullmatch(address)
    if parts is None:
        raise UserError(
            f"policy.base: {shortened(base)!r} is not an address of a model; write {MODELS}NAME/VERSION or "
            f"{MODELS}NAME@ALIAS"
        )
    if parts["version"] is not None:
        try:
            return registry.version_info(parts["name"], int(parts["version"]))
        except UserError as error:
            raise UserError(f"policy.base: {error}") from None
    version = registry.by_alias(parts["name"], parts["alias"])
    if version is None:
        hint = "; the first policy needs another base" if base == CHAMPION else ""
        raise UserError(f"policy.base: model {parts['name']!r} has no version with the alias {parts['alias']}{hint}")
    return version


def version_of_stage(model: str, made: StepResult, run: str) -> registry.VersionInfo:
    """Return the version with the policy that a stage made; it is registered if it is not yet.

    Args:
        model: registered name of the stage's policies.
        made: result of the stage's last training.
        run: MLflow run of the stage's flow.
    """
    known = registry.find_by_tag(model, tags.WEIGHTS_SHA256, made.digest)
    origin = runs.inherited_tags(run)
    if known:
        if registry.facts_of(known[0]).get(tags.UNPINNED) and not origin.get(tags.UNPINNED):
            registry.annotate(model, known[0].version, origin | {tags.UNPINNED: ""})
        return known[0]
    facts = origin | {tags.WEIGHTS_SHA256: made.digest, tags.RUN: run}
    return registry.version_info(model, registry.register(model, made.links["model_id"], facts))


def newest_start(recipe: Recipe) -> registry.VersionInfo:
    """Return the version of the stage before a recipe from which the recipe's newest policy was trained.

    Raises:
        UserError: the recipe has no policy that began with this stage.
    """
    *_, stage = stages_before(recipe)
    for version in registry.versions(policy_name(recipe)):
        name, _, number = registry.facts_of(version).get(tags.BASE_VERSION, "").rpartition("/")
        if name == policy_name(stage):
            return registry.version_info(name, int(number))
    raise UserError(
        f"policy.base.recipe: {recipe.name} has no policy yet that was trained on from {stage.name}; run {recipe.name} "
        "first"
    )


def note_of(kind: str, recipe: Recipe, home: Path) -> Path:
    """Return the path of the file that records which version an unfinished flow of the recipe began with.

    Args:
        kind: kind of the flow: an evaluation that ends does not affect a training that was stopped.
    """
    return home / "bases" / f"{kind}-{digest(plain(recipe))[:24]}.json"


def resolve_base(
    kind: str, recipe: Recipe, home: Path, stage: Callable[[], registry.VersionInfo] | None = None
) -> tuple[Recipe, Base | None]:
    """Replace a registered base in the recipe by its model folder; return the recipe and the version.

    The version is None, and the recipe unchanged, if its base is not a registered version.

    Args:
        kind: kind of the flow.
        recipe: as it was read.
        home: the state folder, where the version is recorded until `until_done`.
        stage: returns the version that the stage before the recipe made; None: the one that the recipe's newest policy
            began with.

    Raises:
        UserError: the version does not exist, or its files are gone or are not the registered ones.
    """
    if isinstance(recipe.policy.base, StageSettings):
        version = newest_start(recipe) if stage is None else stage()
        base = Base(version, f"the recipe {recipe.policy.base.recipe}", of_stage=True)
        return _with_folder(recipe, base), base
    address = recipe.policy.named_base or ""
    if not is_registered(address):
        return recipe, None
    note, earlier = note_of(kind, recipe, home), None
    if note.is_file():
        earlier = _read(note)
    base = Base(earlier or named_version(address, policy_name(recipe)), address, earlier is not None)
    note.parent.mkdir(parents=True, exist_ok=True)
    write_file(note, json.dumps({"base": base.version.uri}) + "\n")
    return _with_folder(recipe, base), base


def current_base(recipe: Recipe) -> tuple[Recipe, Base | None]:
    """Do the same as `resolve_base` without a record of the version, for commands that only read.

    Raises:
        UserError: the version does not exist, or its files are gone or are not the registered ones.
    """
    address = recipe.policy.named_base or ""
    if not is_registered(address):
        return recipe, None
    base = Base(named_version(address, policy_name(recipe)), address)
    return _with_folder(recipe, base), base


def _with_folder(recipe: Recipe, base: Base) -> Recipe:
    policy = replace(recipe.policy, base=str(registered_files(base.version).folder))
    return recipe.model_copy(update={"policy": policy})


def described(recipe: Recipe, base: Base | None) -> Recipe:
    """Return the recipe as a run logs it: a registered base becomes the address of its version, not an alias."""
    if base is None:
        return recipe
    return recipe.model_copy(update={"policy": replace(recipe.policy, base=base.version.uri)})


def source_line(recipe: Recipe) -> str:
    """Return the source of a recipe's base model in one line; empty without a base or without a record of its source.

    Args:
        recipe: recipe with its base as a folder, see `resolve_base`.
    """
    named = recipe.policy.named_base
    folder = given_folder(named) if named is not None else None
    source = read_source(folder) if folder is not None else None
    return source.origin if source is not None else ""


@contextmanager
def until_done(kind: str, recipe: Recipe, home: Path) -> Iterator[None]:
    """Delete the record of the version that a flow of the recipe began with, once the block has completed.

    A run that is stopped leaves the record for the run that resumes it.
    """
    yield
    note_of(kind, recipe, home).unlink(missing_ok=True)


def _read(note: Path) -> registry.VersionInfo | None:
    """Return the version of a note; None if the note is broken or the version was deleted."""
    try:
        return named_version(str(json.loads(note.read_text())["base"]), "")
    except (ValueError, KeyError, TypeError, UserError):
        return None

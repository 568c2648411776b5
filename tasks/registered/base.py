"""`policy.base: champion`, or any `models:/NAME/VERSION` and `models:/NAME@ALIAS`: train on from a registered version.

An alias is resolved once, when a run begins, and written down in the state folder until the run is over: one that was
stopped goes on from the version that it began with, whoever is champion by then. What a version holds is known by the
hash of its files, as any base is.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from models.atomic_write import write_file
from models.bases.source import read_source
from models.errors import UserError, shortened
from models.policy.folder import CHAMPION, MODELS, given_folder, is_registered
from models.recipe.load import digest, plain
from models.recipe.schema import Recipe
from tasks.registered.files import registered_files
from tasks.steps.promote import policy_name
from tasks.tracking import registry

_ADDRESS = re.compile(rf"{re.escape(MODELS)}(?P<name>[^/@]+)(?:/(?P<version>[1-9][0-9]*)|@(?P<alias>[^/@]+))")


@dataclass(frozen=True)
class Base:
    """A registered version that a policy begins with."""

    version: registry.VersionInfo
    asked: str
    """What the recipe calls it."""
    resumed: bool = False
    """Whether it is the version that an earlier, stopped run began with."""

    @property
    def name(self) -> str:
        """NAME/VERSION."""
        return f"{self.version.name}/{self.version.version}"

    def __str__(self) -> str:
        again = ", as when the stopped run began" if self.resumed else ""
        return f"{self.version.uri}" + (f" ({self.asked}{again})" if self.asked != self.version.uri else "")


def named_version(base: str, model: str) -> registry.VersionInfo:
    """The version that an address means now.

    Args:
        base: as in `policy.base`.
        model: registered name of the recipe's own policies, which `champion` means.

    Raises:
        UserError: it is no address, or there is no such version.
    """
    address = f"{MODELS}{model}@{registry.CHAMPION}" if base == CHAMPION else base
    parts = _ADDRESS.fullmatch(address)
    if parts is None:
        raise UserError(
            f"policy.base: {shortened(base)!r} is no address of a model; write {MODELS}NAME/VERSION or "
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


def note_of(kind: str, recipe: Recipe, home: Path) -> Path:
    """File that says, while a flow of the recipe goes on or was stopped, which version it began with.

    Args:
        kind: of the flow: an evaluation that ends says nothing of a training that was stopped.
    """
    return home / "bases" / f"{kind}-{digest(plain(recipe))[:24]}.json"


def resolve_base(kind: str, recipe: Recipe, home: Path) -> tuple[Recipe, Base | None]:
    """The recipe with its base as a folder, and the version that it is of; a recipe with another base as it is.

    Args:
        kind: of the flow.
        recipe: as it was read.
        home: the state folder, where the version is written down until `until_done`.

    Raises:
        UserError: there is no such version, or its files are gone or are not what was registered.
    """
    asked = recipe.policy.base or ""
    if not is_registered(asked):
        return recipe, None
    note, earlier = note_of(kind, recipe, home), None
    if note.is_file():
        earlier = _read(note)
    base = Base(earlier or named_version(asked, policy_name(recipe)), asked, earlier is not None)
    note.parent.mkdir(parents=True, exist_ok=True)
    write_file(note, json.dumps({"base": base.version.uri}) + "\n")
    return _with_folder(recipe, base), base


def current_base(recipe: Recipe) -> tuple[Recipe, Base | None]:
    """Resolve the base as it is now and write nothing down, for commands that only look. Returns as `resolve_base`.

    Raises:
        UserError: there is no such version, or its files are gone or are not what was registered.
    """
    asked = recipe.policy.base or ""
    if not is_registered(asked):
        return recipe, None
    base = Base(named_version(asked, policy_name(recipe)), asked)
    return _with_folder(recipe, base), base


def _with_folder(recipe: Recipe, base: Base) -> Recipe:
    policy = replace(recipe.policy, base=str(registered_files(base.version).folder))
    return recipe.model_copy(update={"policy": policy})


def described(recipe: Recipe, base: Base | None) -> Recipe:
    """The recipe as it stands on a run: with the version's address, which never comes to mean another."""
    if base is None:
        return recipe
    return recipe.model_copy(update={"policy": replace(recipe.policy, base=base.version.uri)})


def source_line(recipe: Recipe) -> str:
    """The source of a recipe's base model in one line; empty if it has no base, or one without a record of its source.

    Args:
        recipe: with its base as a folder, see `resolve_base`.
    """
    folder = given_folder(recipe.policy.base) if recipe.policy.base is not None else None
    source = read_source(folder) if folder is not None else None
    return source.origin if source is not None else ""


@contextmanager
def until_done(kind: str, recipe: Recipe, home: Path) -> Iterator[None]:
    """Forget which version a flow of the recipe began with once what is inside has come to its end; a run that is
    stopped leaves it for the one that goes on."""
    yield
    note_of(kind, recipe, home).unlink(missing_ok=True)


def _read(note: Path) -> registry.VersionInfo | None:
    """The version of a note; None where the note is broken or the version was deleted."""
    try:
        return named_version(str(json.loads(note.read_text())["base"]), "")
    except (ValueError, KeyError, TypeError, UserError):
        return None

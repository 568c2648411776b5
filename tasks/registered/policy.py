"""A policy for the evaluations: its files, and the hash that identifies a cached result."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from models.base.errors import UserError
from tasks.registered.files import registered_files
from tasks.runner.contents import content_of_files
from tasks.runner.step import StepResult
from tasks.tracking import registry


class PolicyFiles(NamedTuple):
    """Inputs of an evaluation for a policy."""

    folder: Path
    """A model folder; not to be changed."""
    digest: str
    """Content hash of the folder."""
    model_id: str
    """Its LoggedModel."""


def registered_policy(version: registry.VersionInfo) -> PolicyFiles:
    """Fetch a version's files.

    Raises:
        UserError: they are gone, or are not the registered ones.
    """
    folder, digest = registered_files(version)
    return PolicyFiles(folder, digest, version.model_id)


def given_policy(path: str) -> PolicyFiles:
    """Return a model folder that a recipe names; it is not in the tracking store."""
    folder = Path(path).expanduser()
    return PolicyFiles(folder, content_of_files(folder), "")


def named_version(named: str) -> registry.VersionInfo | None:
    """Return the registered policy version NAME/VERSION; None if `named` is the path of a model folder.

    Raises:
        UserError: it is neither.
    """
    name, _, number = named.rpartition("/")
    if name in registry.policy_names() and number.isdecimal():
        return registry.version_info(name, int(number))
    if not Path(named).expanduser().is_dir():
        raise UserError(f"{named}: neither a version nor a model folder")
    return None


def named_policy(named: str) -> tuple[PolicyFiles, registry.VersionInfo | None]:
    """Return the files of a version, NAME/VERSION, with its registry entry; or of a model folder.

    Raises:
        UserError: it is neither.
    """
    version = named_version(named)
    return given_policy(named) if version is None else registered_policy(version), version


def made_policy(made: StepResult) -> PolicyFiles:
    """Return the policy of a warm start or a fine-tuning."""
    return PolicyFiles(Path(made.folder) / "policy", made.digest, made.links["model_id"])

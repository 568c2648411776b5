"""A policy as the evaluations take it: where its files lie, the hash that a cached result of it is known by."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from models.errors import UserError
from tasks.registered.files import registered_files
from tasks.runner.contents import content_of_files
from tasks.runner.step import StepResult
from tasks.tracking import registry


class PolicyFiles(NamedTuple):
    """What an evaluation asks of a policy."""

    folder: Path
    """A model folder; not to be changed."""
    digest: str
    """Content hash of the folder."""
    model_id: str
    """Its LoggedModel."""


def registered_policy(version: registry.VersionInfo) -> PolicyFiles:
    """Fetch a version's files.

    Raises:
        UserError: they are gone, or are not what was registered.
    """
    folder, digest = registered_files(version)
    return PolicyFiles(folder, digest, version.model_id)


def given_policy(path: str) -> PolicyFiles:
    """A model folder that a recipe names; it is none of the tracking store's."""
    folder = Path(path).expanduser()
    return PolicyFiles(folder, content_of_files(folder), "")


def named_version(named: str) -> registry.VersionInfo | None:
    """What the registry knows of a policy's version, NAME/VERSION; None: it is the path of a model folder.

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
    """The files of a version, NAME/VERSION, with what the registry knows of it; or of a model folder.

    Raises:
        UserError: it is neither.
    """
    version = named_version(named)
    return given_policy(named) if version is None else registered_policy(version), version


def made_policy(made: StepResult) -> PolicyFiles:
    """The policy of a warm start or a fine-tuning."""
    return PolicyFiles(Path(made.folder) / "policy", made.digest, made.links["model_id"])

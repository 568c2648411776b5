"""Policies to evaluate: a registered version, a model folder, or the result of a step."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from models.base.errors import UserError
from tasks.registered.files import registered_files
from tasks.runner.contents import content_of_files
from tasks.runner.step import StepResult
from tasks.tracking import registry


class PolicyFiles(NamedTuple):
    """Folder, content hash and LoggedModel of a policy."""

    folder: Path
    """A model folder; not to be changed."""
    digest: str
    """Content hash of the folder."""
    model_id: str
    """Id of its LoggedModel; "" for a folder that is not in the tracking store."""


def registered_policy(version: registry.VersionInfo) -> PolicyFiles:
    """Fetch the files of a registered policy version.

    Raises:
        UserError: they are gone, or are not the registered ones.
    """
    folder, digest = registered_files(version)
    return PolicyFiles(folder, digest, version.model_id)


def given_policy(path: str) -> PolicyFiles:
    """Return the policy in a model folder that a recipe names; it is not in the tracking store."""
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
    """Return the files of a policy, given as NAME/VERSION or as a model folder, and its version (None for a folder).

    Raises:
        UserError: it is neither.
    """
    version = named_version(named)
    return given_policy(named) if version is None else registered_policy(version), version


def policy_of_step(made: StepResult) -> PolicyFiles:
    """Return the policy that a warm start or a fine-tuning made."""
    return PolicyFiles(Path(made.folder) / "policy", made.digest, made.links["model_id"])

"""A registered policy as the steps take it: where its files lie, the hash that a cached result of it is known by."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from models.policy.folder import hash_folder
from tasks.tracking import registry, tags


class RegisteredPolicy(NamedTuple):
    """What an evaluation asks of a version."""

    folder: Path
    """A model folder; not to be changed."""
    digest: str
    """Content hash of the folder."""
    model_id: str
    """The LoggedModel behind the version."""


def registered_policy(version: registry.VersionInfo) -> RegisteredPolicy:
    """Fetch a version's files, and hash them where it carries no hash: somebody registered it by hand.

    Raises:
        UserError: its files are gone.
    """
    folder = registry.fetch(version.uri)
    return RegisteredPolicy(folder, version.tags.get(tags.WEIGHTS_SHA256) or hash_folder(folder), version.model_id)

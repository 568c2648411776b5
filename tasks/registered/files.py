"""The files of a registered version, checked against the hash with which it was registered."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from models.base.errors import UserError
from tasks.runner.contents import content_of_files
from tasks.tracking import registry, tags


class RegisteredFiles(NamedTuple):
    """Model folder and content hash of a registered version."""

    folder: Path
    """A model folder; not to be changed."""
    digest: str
    """Content hash of the folder, equal to the version's tag; a version that was registered by hand has no tag."""


def registered_files(version: registry.VersionInfo) -> RegisteredFiles:
    """Fetch the files of a registered version, and check that they are those that were registered.

    An evaluation of other weights than the registered ones would not measure the version, whatever is recorded about
    it.

    Raises:
        UserError: its files are gone, or are not the registered ones.
    """
    folder = registry.fetch(version.uri)
    digest = content_of_files(folder).removeprefix("sha256:")
    registered = version.tags.get(tags.WEIGHTS_SHA256, "")
    if registered and digest != registered:
        raise UserError(
            f"{version.name} version {version.version}: its files ({folder}) are not what was registered, "
            f"sha256 {registered[:12]}..."
        )
    return RegisteredFiles(folder, digest)

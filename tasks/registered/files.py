"""The files of a registered version, which are used only while they are what was registered."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from models.errors import UserError
from tasks.runner.contents import content_of_files
from tasks.tracking import registry, tags


class RegisteredFiles(NamedTuple):
    """A version's files."""

    folder: Path
    """A model folder; not to be changed."""
    digest: str
    """Content hash of the folder. A version has it as a tag, but where somebody registered it by hand."""


def registered_files(version: registry.VersionInfo) -> RegisteredFiles:
    """Fetch a version's files and hold them against the hash that it was registered with.

    Whoever is measured with other weights than its own is not measured, whatever was recorded of it before.

    Raises:
        UserError: its files are gone, or are not what was registered.
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

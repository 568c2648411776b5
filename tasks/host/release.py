"""The release of an installed package: its version, the hash of its files, and files changed after the installation."""

from __future__ import annotations

import base64
import hashlib
from dataclasses import dataclass
from functools import lru_cache
from importlib.metadata import distribution
from pathlib import Path

PACKAGES = ("flows/", "tasks/", "models/", "rewardflow/")


@dataclass(frozen=True)
class Release:
    """An installed release of Rewardflow."""

    name: str
    """Version and the first digits of the hash of its files, such as `0.2.0 (sha256 4f1c...)`."""
    changed: tuple[str, ...]
    """Files that differ from those that were installed, or are gone."""


@lru_cache(maxsize=1)
def installed_release() -> Release:
    """Return the release that is installed; pip's record of the installation has the hash of each file."""
    installed = distribution("rewardflow")
    total, changed = hashlib.sha256(), []
    for file in sorted(installed.files or (), key=str):
        if not str(file).startswith(PACKAGES) or file.hash is None:
            continue
        total.update(f"{file} {file.hash.value}\n".encode())
        try:
            content = Path(str(file.locate())).read_bytes()
        except OSError:
            changed.append(str(file))
            continue
        present = base64.urlsafe_b64encode(hashlib.new(file.hash.mode, content).digest()).rstrip(b"=").decode()
        if present != file.hash.value:
            changed.append(str(file))
    return Release(f"{installed.version} (sha256 {total.hexdigest()[:12]})", tuple(changed))

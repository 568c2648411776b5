"""What a recipe names on this machine, by its content: files and folders change under the same path."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from models.errors import UserError
from models.policy.folder import given_folder, hash_folder

SETTLED = 2_000_000_000
"""Age from which the time of a file's last change can be trusted to tell changes apart, ns."""


def policy_inputs(policy: Mapping[str, Any]) -> dict[str, Any]:
    """The section `policy` of a recipe as a key needs it: for a file or folder that it names, the hash of the content.

    A base that is no local folder is a hub id and stays as it is.

    Raises:
        UserError: the masks of a subnetwork are not there.
    """
    inputs = dict(policy)
    folder = given_folder(policy["base"]) if policy["base"] is not None else None
    if folder is not None:
        inputs["base"] = _content(folder)
    masks = (policy["subnetwork"] or {}).get("masks")
    if masks is not None:
        file = Path(masks)
        if not file.is_file():
            raise UserError(f"policy.subnetwork.masks: {masks}: no such file")
        inputs["subnetwork"] = {**policy["subnetwork"], "masks": _content(file)}
    return inputs


def _content(place: Path) -> str:
    """Hash of a file or of all files of a folder, read once as long as their stamps stay: base models are large."""
    files = [place] if place.is_file() else sorted(file for file in place.rglob("*") if file.is_file())
    stamps = tuple((str(file), file.stat().st_size, file.stat().st_mtime_ns) for file in files)
    # A file written just now may be written again within one tick of the file system's clock, and show no new stamp.
    young = max((changed for *_, changed in stamps), default=0) > time.time_ns() - SETTLED
    return _hashed.__wrapped__(place, stamps) if young else _hashed(place, stamps)


@lru_cache(maxsize=64)
def _hashed(place: Path, stamps: tuple[tuple[str, int, int], ...]) -> str:
    if place.is_dir():
        return f"sha256:{hash_folder(place)}"
    with place.open("rb") as handle:
        return f"sha256:{hashlib.file_digest(handle, 'sha256').hexdigest()}"

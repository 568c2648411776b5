"""Conversion of a step's inputs for its key: settings become plain data, outputs and files become hashes."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from pydantic import BaseModel

from models.agents.turn_scorer import ScorerSettings
from models.base.errors import UserError
from models.base.sections import Sections
from models.evaluation.gate.held_out import HeldOutSettings
from models.method.plugins import plugin_of
from models.method.recipe_paths import paths_of, used_by_content
from models.method.registry import Part
from models.policies.aspects import ReadingSettings
from models.policies.build import PolicySettings
from models.policies.folder import given_folder, hash_folder
from models.policies.teacher import FrozenSettings
from models.policies.update_sparsity import SubnetworkSettings

SETTLED = 2_000_000_000
"""Minimum age of a file's last change, ns, for its hash to be cached: a younger file may change without a new time."""


@runtime_checkable
class HasDigest(Protocol):
    """An output that is identified by the hash of its content."""

    @property
    def digest(self) -> str: ...


def content_of(value: Any) -> Any:
    """Convert an input of a step to plain data for its key; inputs that give the same result become equal.

    Raises:
        UserError: the masks of a subnetwork are missing.
        TypeError: the content of `value` is not defined. A path has none: files and folders change under the same path.
    """
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, HasDigest):
        return value.digest
    if isinstance(value, Mapping):
        return {str(key): content_of(entry) for key, entry in value.items()}
    if isinstance(value, Sequence):
        return [content_of(entry) for entry in value]
    if isinstance(value, Sections):
        return content_of(vars(value))
    if isinstance(value, HeldOutSettings):  # a verdict receives the answers to its files as evaluations
        return content_of(value.model_dump(exclude={"path"}))
    if isinstance(value, BaseModel):
        return content_of(dict(value))
    if is_dataclass(value):
        return {item.name: content_of(getattr(value, item.name)) for item in fields(value)} | _named_files(value)
    raise TypeError(f"a step's key cannot hold {value!r}: its content is not defined")


def _named_files(settings: Any) -> dict[str, Any]:
    """Map each setting to the hash of the file or folder that it names here; a base that is neither is a hub id.

    For a part of an installed package, the package, its version and the hash of its source are added.
    """
    if isinstance(settings, PolicySettings) and (base := settings.named_base) is not None:
        folder = given_folder(base)
        return {"base": content_of_files(folder)} if folder is not None else {}
    if isinstance(settings, ReadingSettings) and settings.base is not None:
        folder = given_folder(settings.base)
        return {"base": content_of_files(folder, weights=False)} if folder is not None else {}
    if isinstance(settings, Part):
        read = dict.fromkeys(paths_of(type(settings)), " ".join(source.sha256 for source in settings.given))
        used = {name: _used(getattr(settings, name)) for name in used_by_content(type(settings))}
        plugin = plugin_of(type(settings))
        source = {} if plugin is None else {"installed package": list(plugin.identity)}
        return (read if settings.given else {}) | used | source
    if isinstance(settings, SubnetworkSettings) and settings.masks is not None:
        if not Path(settings.masks).is_file():
            raise UserError(f"policy.subnetwork.masks: {settings.masks}: no such file")
        return {"masks": content_of_files(Path(settings.masks))}
    if isinstance(settings, ScorerSettings):
        return {"path": _used(settings.path)}
    if isinstance(settings, FrozenSettings) and settings.path is not None:
        return {"path": content_of_files(Path(settings.path).expanduser())}
    return {}


def _used(named: str | Sequence[str]) -> str | list[str]:
    """Return the content of a path, or the words of a list with each file or model folder replaced by its content.

    Another folder in a command is not replaced: it may contain everything.
    """
    if not isinstance(named, str):
        places = [(word, Path(word).expanduser() if word.startswith("~/") else Path(word)) for word in named]
        return [
            content_of_files(place) if place.is_file() or (place / "config.json").is_file() else word
            for word, place in places
        ]
    place = Path(named).expanduser()
    return content_of_files(place) if named and place.exists() else named


def content_of_files(place: Path, *, weights: bool = True) -> str:
    """Return the hash of a file, or of all files of a folder; it is cached until a size, inode or time changes.

    Base models are large, so the hash is cached.

    Args:
        place: file or folder.
        weights: whether a folder's weights count; False: a hash of all other files, such as the tokenizer.
    """
    if not weights and place.is_dir():
        return f"sha256:{hash_folder(place, weights=False)}"
    files = [place] if place.is_file() else sorted(file for file in place.rglob("*") if file.is_file())
    stamps = tuple((str(file), *_stamp(file)) for file in files)
    # A file written just now may be written again within one tick of the file system's clock, without a new stamp.
    young = max((max(times) for *_, times in stamps), default=0) > time.time_ns() - SETTLED
    return _hashed.__wrapped__(place, stamps) if young else _hashed(place, stamps)


def _stamp(file: Path) -> tuple[int, int, tuple[int, int]]:
    """Return the stamp that distinguishes a file from another of the same name: size, inode and times.

    A copy that keeps the time of the last change has another inode; a file that was changed in place has another ctime.
    """
    there = file.stat()
    return there.st_size, there.st_ino, (there.st_mtime_ns, there.st_ctime_ns)


@lru_cache(maxsize=64)
def _hashed(place: Path, stamps: tuple[tuple[str, int, int, tuple[int, int]], ...]) -> str:
    if place.is_dir():
        return f"sha256:{hash_folder(place)}"
    with place.open("rb") as handle:
        return f"sha256:{hashlib.file_digest(handle, 'sha256').hexdigest()}"

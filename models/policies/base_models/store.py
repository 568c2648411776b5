"""Store of the base models that were converted on this machine: one folder per GGUF file, named by its hash."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from functools import lru_cache
from pathlib import Path

from models.base.atomic_write import replace_folder
from models.base.disk import state_folder
from models.base.errors import UserError
from models.base.file_hash import sha256_of
from models.policies.base_models.catalogue import CATALOGUE
from models.policies.base_models.convert import WEIGHTS, convert
from models.policies.base_models.source import CONVERTER, read_source

FOLDER = "base_models"
"""Name of the store in the state folder."""
SUFFIX = ".gguf"


def store_folder() -> Path:
    """Return the folder of all converted base models, in the state folder."""
    return state_folder() / FOLDER


def stored_at(gguf_sha256: str) -> Path:
    """Return the folder of the base model that is converted from the GGUF file with this hash."""
    return store_folder() / gguf_sha256


def is_stored(gguf_sha256: str) -> bool:
    """Return whether a GGUF file was converted on this machine by this version of the conversion."""
    source = read_source(stored_at(gguf_sha256))
    return source is not None and source.converter == CONVERTER


def is_whole(gguf_sha256: str) -> bool:
    """Return whether a stored base model has the weights that the conversion wrote."""
    folder = stored_at(gguf_sha256)
    source, weights = read_source(folder), folder / WEIGHTS
    return is_stored(gguf_sha256) and weights.is_file() and sha256_of(weights) == getattr(source, "weights_sha256", "")


def is_named(base: str) -> bool:
    """Return whether a value of `policy.base` is a name in the catalogue or a GGUF file.

    A folder with a name of the catalogue is written `./NAME`.
    """
    return base in CATALOGUE or (base.lower().endswith(SUFFIX) and not Path(base).expanduser().is_dir())


def folder_of(base: str) -> Path:
    """Return the model folder of a name in the catalogue or of a GGUF file, which is converted if it is not yet.

    Raises:
        UserError: the named model is not on this machine, or the GGUF file cannot be converted.
    """
    entry = CATALOGUE.get(base)
    if entry is not None:
        if not is_stored(entry.gguf_sha256):
            raise UserError(f"policy.base: {base} is not on this machine; `rewardflow base add {base}` downloads it")
        return mark_used(stored_at(entry.gguf_sha256))
    file = Path(base).expanduser()
    if not file.is_file():
        raise UserError(f"policy.base: {base}: no such file")
    try:
        return converted(file)
    except UserError as error:
        raise UserError(f"policy.base: {error}") from None


def mark_used(folder: Path) -> Path:
    """Record that a stored base model is used now, for `rewardflow gc`. Returns the folder."""
    with suppress(OSError):  # a read-only state folder
        os.utime(folder)
    return folder


def converted(file: Path) -> Path:
    """Convert a GGUF file, unless it was converted before. Returns the model folder.

    Raises:
        UserError: it cannot be converted.
    """
    stamp = file.stat()
    gguf_sha256 = _hashed(file.absolute(), stamp.st_size, stamp.st_ino, stamp.st_mtime_ns, stamp.st_ctime_ns)
    if not is_stored(gguf_sha256):
        print(f"converting {file} for its first use", file=sys.stderr, flush=True)
        with replace_folder(stored_at(gguf_sha256)) as half:
            convert(file, half)
    return mark_used(stored_at(gguf_sha256))


@lru_cache(maxsize=64)
def _hashed(file: Path, *stamp: int) -> str:
    return sha256_of(file)

"""The base model of a training outside the pipeline: the installed one, or converted from files that are given.

A wheel or a GGUF file is checked against the catalogue's hash and converted into a folder of the caller's; the user's
state folder is not changed.
"""

from __future__ import annotations

import importlib.util
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

from models.base.atomic_write import replace_folder
from models.base.errors import UserError
from models.policies.base_models.catalogue import entry_of
from models.policies.base_models.convert import convert
from models.policies.base_models.install import gguf_of
from models.policies.base_models.store import SUFFIX
from models.policies.folder import check_model_folder, given_folder


def base_folder(base: str, files: Sequence[Path], folder: Path) -> Path:
    """Find the model folder of a recipe's base, or make it of given files.

    Args:
        base: the recipe's `policy.base`.
        files: a wheel or GGUF file of it; several are parts of one file, in their order. empty: the installed one.
        folder: where a given file is converted to, once.

    Raises:
        UserError: the base is not on this machine, the files are not those of the catalogue, or they cannot be
            converted here.
    """
    if not files:
        installed = given_folder(base)
        if installed is None:
            raise UserError(f"policy.base: {base} is not on this machine; give its folder")
        check_model_folder(installed)
        return installed
    entry = entry_of(base)
    place = folder / f"base_{entry.gguf_sha256[:12]}"
    if not place.is_dir():
        if importlib.util.find_spec("gguf") is None:
            raise UserError("--base: the package gguf, which reads the file, is not installed")
        with replace_folder(place) as half:
            unpacked = half / "unpacked"
            unpacked.mkdir()
            whole = files[0] if len(files) == 1 else joined(files, unpacked / "joined")
            convert(gguf_of(entry, whole, unpacked / f"base{SUFFIX}", _silent), half)
            shutil.rmtree(unpacked)
    return place


def joined(parts: Sequence[Path], file: Path) -> Path:
    """Write the parts of a file one after another into `file`. Returns `file`.

    Raises:
        UserError: a part does not exist.
    """
    with file.open("wb") as whole:
        for part in parts:
            if not part.is_file():
                raise UserError(f"{part}: no such file")
            with part.open("rb") as piece:
                shutil.copyfileobj(piece, whole, 2**20)
    return file


def _silent(stage: str, size: int) -> Callable[[int], object]:
    """Report no progress of a conversion."""
    return lambda done: None

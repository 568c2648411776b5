"""Atomic writes of files and folders: written under a temporary name in the same folder, synced, then renamed.

A reader sees the old content or the new content, never a part of it; this also holds after a kill or a power cut. The
temporary file or folder of a killed write is recognised by its name, and `sweep` removes it.
"""

from __future__ import annotations

import os
import re
import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from models.base.disk import needs_space


def write_file(file: Path, content: str | bytes) -> None:
    """Write `file`, and replace an older one; its folder is created if it is missing.

    Args:
        file: path to write. Other threads and processes may write it at the same time; the last write remains.
        content: text, which is written as UTF-8, or bytes.

    Raises:
        UserError: the disk is full; the older file is unchanged.
    """
    with replace_file(file) as partial_file:
        partial_file.write_bytes(content.encode("utf-8") if isinstance(content, str) else content)


@contextmanager
def replace_file(file: Path) -> Iterator[Path]:
    """Yield a temporary path in the folder of `file`, for libraries that write files themselves.

    The temporary file replaces `file` when the block ends without an exception, and is removed otherwise.

    Raises:
        UserError: the disk is full; the older file is unchanged.
    """
    partial_file = _partial_path(file)
    try:
        with needs_space(file):
            file.parent.mkdir(parents=True, exist_ok=True)
            yield partial_file
            sync(partial_file)
            os.replace(partial_file, file)
            sync(file.parent)  # the new name, too, is safe from a power cut
    finally:
        partial_file.unlink(missing_ok=True)


@contextmanager
def replace_folder(folder: Path) -> Iterator[Path]:
    """Yield an empty temporary folder, next to `folder`, to fill.

    It replaces `folder` when the block ends without an exception, and is removed otherwise.

    Raises:
        UserError: the disk is full; the older folder is unchanged.
    """
    partial_file = _partial_path(folder)
    sweep(folder.parent, f".{folder.name}.*.part", deep=False)
    try:
        with needs_space(folder):
            partial_file.mkdir(parents=True)
            yield partial_file
            sync_folder(partial_file)
            if folder.exists():
                shutil.rmtree(folder)
            os.replace(partial_file, folder)
            sync(folder.parent)
    finally:
        shutil.rmtree(partial_file, ignore_errors=True)


def leftovers(folder: Path, pattern: str = ".*.part", deep: bool = True) -> list[Path]:
    """Return the temporary files and folders of killed writes below `folder`, or directly in it if not `deep`.

    Those of a thread that still runs are left out: it is still writing.
    """
    matching = folder.rglob(pattern) if deep else folder.glob(pattern)
    named = ((path, re.fullmatch(r"\..+\.(\d+)\.part", path.name)) for path in matching)
    return sorted(path for path, name in named if name and not os.path.exists(f"/proc/{name[1]}"))


def sweep(folder: Path, pattern: str = ".*.part", deep: bool = True) -> None:
    """Remove the `leftovers`."""
    for path in leftovers(folder, pattern, deep):
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)  # its folder may be removed already


def _partial_path(path: Path) -> Path:
    return path.with_name(f".{path.name}.{threading.get_native_id()}.part")  # unique on this machine


def sync(path: Path) -> None:
    """Wait until the content of a file, or the names in a folder, are on the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def sync_folder(folder: Path) -> None:
    """Wait until everything below `folder`, names included, is on the disk."""
    for path in (*sorted(folder.rglob("*")), folder):
        sync(path)

"""A file appears whole or not at all: written under another name beside, synced to the disk, then renamed.

A reader sees the old content or the new one, never a part; so does the next start after a kill or a power cut.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from models.disk import needs_space


def write_file(file: Path, content: str | bytes) -> None:
    """Write `file`, in place of an older one; its folder is made where it is missing.

    Args:
        file: what is written; other threads and processes may write it at the same time, the last one stays.
        content: text, which is written as UTF-8, or bytes.

    Raises:
        UserError: the disk is full; the older file is there as it was.
    """
    with replace_file(file) as beside:
        beside.write_bytes(content.encode("utf-8") if isinstance(content, str) else content)


@contextmanager
def replace_file(file: Path) -> Iterator[Path]:
    """A path beside `file` to write to, for libraries that write files themselves; what lies there takes the place of
    `file` when the block ends without an exception, and is removed otherwise.

    Raises:
        UserError: the disk is full; the older file is there as it was.
    """
    beside = file.with_name(f".{file.name}.{threading.get_native_id()}.part")  # nobody else's on this machine
    try:
        with needs_space(file):
            file.parent.mkdir(parents=True, exist_ok=True)
            yield beside
            sync(beside)
            os.replace(beside, file)
            sync(file.parent)  # the new name, too, is safe from a power cut
    finally:
        beside.unlink(missing_ok=True)


def sync(path: Path) -> None:
    """Wait until what was written to a file, or the names in a folder, are on the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def sync_folder(folder: Path) -> None:
    """Wait until all that lies below `folder` is on the disk, its names too."""
    for path in (*sorted(folder.rglob("*")), folder):
        sync(path)

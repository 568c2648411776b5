"""A folder appears whole or not at all: it is written under another name beside, then renamed."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from models.atomic_write import sync, sync_folder


@contextmanager
def replace_folder(folder: Path) -> Iterator[Path]:
    """An empty folder to write into, which takes the place of `folder` when the block ends without an exception."""
    partial = folder.with_name(f".{folder.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)  # what a killed run left
    partial.mkdir(parents=True)
    try:
        yield partial
        sync_folder(partial)
        if folder.exists():
            shutil.rmtree(folder)
        os.replace(partial, folder)
        sync(folder.parent)  # the new name, too, is safe from a power cut
    finally:
        shutil.rmtree(partial, ignore_errors=True)

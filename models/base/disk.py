"""The state folder, and detection of a full disk from any error that it causes, reported in one line."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from models.base.errors import UserError

ERROR_TEXTS = (
    "No space left on device",
    "os error 28",
    "database or disk is full",
    "Disk quota exceeded",
    "no space left",
)
"""Messages of safetensors, SQLite and servers for a full disk, for errors without an error number."""

LEAST_FREE = 64 * 2**20
"""Free bytes below which a run is refused: its databases and logs alone take half of that."""

FULL = 256 * 2**10
"""Free bytes below which a disk counts as full: SQLite's next page or a log's next block may not fit."""


def state_folder() -> Path:
    """Return the folder for all local state: $REWARDFLOW_HOME, by default .rewardflow in the working directory."""
    return Path(os.environ.get("REWARDFLOW_HOME") or ".rewardflow").absolute()


def readable_size(size: float) -> str:
    """Format a size in bytes with a binary unit, as `1.5 MiB`."""
    for unit in ("B", "KiB", "MiB"):
        if size < 1024:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} GiB"


def share_file(source: Path, target: Path) -> None:
    """Create `target` as a hard link to `source`, so that the content is stored once; copy it if that is impossible.

    Both names must belong to files that are replaced and never changed in place.
    """
    try:
        os.link(source, target)
    except OSError:  # another file system, or one without hard links
        shutil.copyfile(source, target)


def out_of_space(error: BaseException) -> bool:
    """Return whether an error or one of its causes reports a full disk."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, OSError) and cause.errno in (errno.ENOSPC, errno.EDQUOT):
            return True
        if any(saying in str(cause) for saying in ERROR_TEXTS):
            return True
        cause = cause.__cause__ or cause.__context__
    return False


def is_full(folder: Path) -> bool:
    """Return whether the disk of `folder` has no room for another file."""
    try:
        return free(folder) < FULL
    except OSError:
        return False


def free(path: Path) -> int:
    """Return the free bytes on the disk that holds `path`, or will hold it."""
    above = (path, *path.absolute().parents)
    there = next(folder for folder in above if os.path.exists(folder))  # Path.exists raises without permission
    return shutil.disk_usage(there).free


def no_space(path: Path) -> UserError:
    """Build the error of a full disk under `path`."""
    return UserError(f"{path}: no space left to write it ({free(path) // 2**20} MiB free); nothing half-written")


def require_space(folder: Path) -> None:
    """Refuse to begin if the disk is nearly full.

    Raises:
        UserError: less than LEAST_FREE is free.
    """
    if free(folder) < LEAST_FREE:
        raise UserError(
            f"{folder}: only {free(folder) // 2**20} MiB free on its disk, a run needs {LEAST_FREE // 2**20} at the "
            "least; free some, or set REWARDFLOW_HOME to a folder on another disk"
        )


@contextmanager
def needs_space(path: Path) -> Iterator[None]:
    """Convert an error of a full disk, raised while `path` is written inside the context, into a one-line error.

    Raises:
        UserError: the disk is full.
    """
    try:
        yield
    except Exception as error:
        if isinstance(error, UserError) or not out_of_space(error):
            raise
        raise no_space(path) from error

"""Release of the slots on a Prefect server that killed processes held, so that the next process need not wait.

Prefect frees the slot of a process that is gone when its lease expires, after a minute. The holder of a slot keeps a
file locked that names the lease; the kernel releases the lock as soon as the process ends, in any way. So a file whose
lock is free names a lease without a holder.
"""

from __future__ import annotations

import fcntl
import json
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from uuid import UUID

FORGOTTEN = 86_400.0
"""Seconds after which the file of a lease on another server is deleted, as that lease expired long ago."""


@contextmanager
def recorded_lease(lease: UUID, server: str, folder: Path | None) -> Iterator[None]:
    """Record that this process holds a lease, until the end of the block or of the process.

    Args:
        lease: the server's lease.
        server: its address.
        folder: see `folder_of_user`; None: nothing is recorded.
    """
    if folder is None:
        yield
        return
    path = folder / f"{lease}.json"
    with path.open("x") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.write(json.dumps({"lease": str(lease), "server": server}))
        file.flush()
        try:
            yield
        finally:
            path.unlink(missing_ok=True)


def give_back(server: str, folder: Path | None, release: Callable[[UUID], object]) -> int:
    """Release the leases that killed processes of this user hold on a server. Return their number.

    Args:
        server: its address.
        folder: see `folder_of_user`.
        release: releases a lease on the server; a lease that the server no longer knows must not be an error.
    """
    released = 0
    for path in sorted(folder.glob("*.json")) if folder is not None else []:
        with suppress(FileNotFoundError, BlockingIOError), path.open() as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            try:
                noted = json.loads(file.read())
                lease, of = UUID(noted["lease"]), str(noted["server"])
            except (ValueError, KeyError, TypeError):  # killed before it was complete
                path.unlink(missing_ok=True)
                continue
            if of == server:
                release(lease)
                released += 1
            elif time.time() - os.fstat(file.fileno()).st_mtime < FORGOTTEN:
                continue
            path.unlink(missing_ok=True)
    return released


def folder_of_user() -> Path | None:
    """Return this user's private folder of recorded leases on this host; None if another user has taken its name."""
    folder = Path(tempfile.gettempdir()) / f"rewardflow-leases-{os.getuid()}"
    with suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    there = folder.lstat()
    ours = there.st_uid == os.getuid() and not folder.is_symlink() and not there.st_mode & 0o077
    return folder if ours else None

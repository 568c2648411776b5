"""The place on a machine's GPUs: one step at a time learns or generates there, of whichever folder or server it is.

Two locks, for two readers. A Prefect concurrency limit, named by the host, shows in Prefect's UI who waits; runs of
other hosts on the same server have limits of their own. A file lock of the kernel holds between runs that know
different servers, and is free the moment that a process is gone; it is taken only where there is a GPU.
"""

from __future__ import annotations

import fcntl
import os
import socket
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

LOCK = "rewardflow-gpu.lock"
"""File in the host's folder of temporary files, which all its users share."""


def limit_name() -> str:
    """Name of this host's concurrency limit on a Prefect server."""
    return f"gpu-{socket.gethostname()}"


@contextmanager
def gpu_slot() -> Iterator[None]:
    """Hold the place; learners and engines that take a GPU's memory are made inside."""
    import torch
    from prefect.concurrency.sync import concurrency

    with concurrency(limit_name(), occupy=1, strict=True, lease_duration=60):
        if not torch.cuda.is_available():
            yield
            return
        with of_host(Path(tempfile.gettempdir())):
            yield


@contextmanager
def of_host(folder: Path) -> Iterator[None]:
    """Hold the lock of a host, against every process on it.

    Args:
        folder: that all of them see.
    """
    path = folder / LOCK
    with suppress(FileExistsError):  # made once, by whoever is first; others may only read it
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDONLY | os.O_NOFOLLOW, 0o644))
    lock = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)

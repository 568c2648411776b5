"""Exclusive use of a machine's GPUs: one step at a time trains or generates there, whatever its state folder or server.

There are two locks, for two purposes. A Prefect concurrency limit, named after the host, shows in Prefect's UI which
runs wait; runs of other hosts on the same server have limits of their own. A file lock of the kernel works between runs
that use different servers, and is released at once when a process ends; it is taken only if there is a GPU. Prefect
frees the slot of a process that is gone after a minute; the next run on this host does not wait for that
(left_leases.py).
"""

from __future__ import annotations

import fcntl
import os
import socket
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from tasks.state import left_leases

LEASE = 60.0
"""Seconds that Prefect's server keeps the slot of a process without renewal; the minimum that it accepts."""
LOCK = "rewardflow-gpu.lock"
"""File in the host's folder of temporary files, which all its users share."""
_holding = 0
"""Number of blocks of `gpu_slot` that this process is in: 0 or 1."""


def limit_name() -> str:
    """Return the name of this host's concurrency limit on a Prefect server."""
    return f"gpu-{socket.gethostname()}"


@contextmanager
def gpu_slot() -> Iterator[None]:
    """Hold the exclusive use of this machine's GPUs; learners and engines that use GPU memory are created inside."""
    import torch

    with _limit_of_host(), ExitStack() as also:
        if torch.cuda.is_available():
            also.enter_context(of_host(Path(tempfile.gettempdir())))
        also.enter_context(_noted())
        yield


def place_is_held() -> bool:
    """Return whether this process holds the exclusive use of this machine's GPUs."""
    return _holding > 0


@contextmanager
def _noted() -> Iterator[None]:
    global _holding
    _holding += 1
    try:
        yield
    finally:
        _holding -= 1


@contextmanager
def _limit_of_host() -> Iterator[None]:
    """Hold the slot of this host's concurrency limit on the Prefect server.

    This does the same as Prefect's `concurrency`, which does not return its lease.
    """
    from prefect.concurrency import _events as events
    from prefect.concurrency import _sync as slots
    from prefect.concurrency._leases import maintain_concurrency_lease
    from prefect.settings import PREFECT_API_URL

    server, folder = str(PREFECT_API_URL.value()), left_leases.folder_of_user()
    left_leases.give_back(server, folder, slots.release_concurrency_slots_with_lease)
    granted = slots.acquire_concurrency_slots_with_lease([limit_name()], 1, lease_duration=LEASE, strict=True)
    began = events.emit_concurrency_acquisition_events(granted.limits, 1)
    try:
        with (
            left_leases.recorded_lease(granted.lease_id, server, folder),
            maintain_concurrency_lease(granted.lease_id, LEASE, raise_on_lease_renewal_failure=True),
        ):
            yield
    finally:
        slots.release_concurrency_slots_with_lease(granted.lease_id)
        events.emit_concurrency_release_events(granted.limits, 1, began)


@contextmanager
def of_host(folder: Path) -> Iterator[None]:
    """Hold this host's lock on its GPUs, which only one process on the host can have.

    Args:
        folder: a folder that all of them can access.
    """
    path = folder / LOCK
    with suppress(FileExistsError):  # created once by the first process; others may only read it
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDONLY | os.O_NOFOLLOW, 0o644))
    lock = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)

"""One run at a time in a state folder; other runs wait in the order of their arrival.

A nightly evaluation that is due during a training runs after it. A waiting process holds a lock on a ticket in the
folder; the ticket's name contains the time of arrival. A ticket without a lock belongs to a process that was killed,
and is skipped. The locks are kernel locks, so a process that ends, in whatever way, leaves no folder locked.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TextIO

from models.base.errors import UserError

WAIT = "REWARDFLOW_WAIT"
"""Seconds that a run waits for earlier runs; 0: it does not wait."""
HALF_A_DAY = 43_200.0
PAUSE = 0.5
"""Seconds between two attempts."""
QUEUE, LOCK = "queue", "run.lock"


def patience() -> float:
    """Return the seconds that a run waits for earlier runs.

    Raises:
        UserError: REWARDFLOW_WAIT is not a number of seconds.
    """
    value = os.environ.get(WAIT, "")
    with suppress(ValueError):
        seconds = float(value) if value else HALF_A_DAY
        if seconds >= 0:
            return seconds
    raise UserError(f"{WAIT} is {value!r}; set it to the seconds that a run may wait for another one, 0 for none")


@contextmanager
def only_run(home: Path, wait: float = 0.0, report: Callable[[str], None] = print) -> Iterator[None]:
    """Hold the lock of the state folder, so that only this run works in it.

    Args:
        home: the state folder.
        wait: maximum seconds to wait for earlier runs.
        report: receives one line for each run that this one waits for.

    Raises:
        UserError: other runs hold the folder for longer.
    """
    home.mkdir(parents=True, exist_ok=True)
    with (home / LOCK).open("a+") as lock:
        with _queue_ticket(home / QUEUE) as ticket:
            deadline, reported_holder, last_holder = time.monotonic() + wait, "", ""
            while _has_earlier_ticket(ticket) or not _take_lock(lock):
                lock.seek(0)
                holder = lock.read().strip() or "unknown"
                if time.monotonic() >= deadline:
                    raise UserError(
                        f"{home}: another run (process {holder}) is in progress in this folder; wait for it or set "
                        "REWARDFLOW_HOME"
                    )
                # Report at the second look: a new holder of the lock may not yet have written its process id.
                if holder != reported_holder and holder == last_holder:
                    report(f"waiting for the run of process {holder} in {home} to end ({WAIT}=0 does not wait)")
                    reported_holder = holder
                last_holder = holder
                time.sleep(PAUSE)
        lock.truncate(0)
        lock.write(str(os.getpid()))
        lock.flush()
        yield


@contextmanager
def _queue_ticket(queue: Path) -> Iterator[Path]:
    """Hold a place in the queue until it is this process's turn."""
    queue.mkdir(exist_ok=True)
    ticket = queue / f"{time.time_ns():020d}-{os.getpid()}"
    # Lock under another name first: a visible ticket without its lock would count as that of a dead process.
    hidden = ticket.with_name(f".{ticket.name}")
    with hidden.open("w") as lock_file:
        fcntl.flock(lock_file, fcntl.LOCK_EX)
        hidden.rename(ticket)
        try:
            yield ticket
        finally:
            ticket.unlink(missing_ok=True)


def _has_earlier_ticket(ticket: Path) -> bool:
    """Whether a process that arrived earlier still waits. Tickets of dead processes are removed."""
    for other in sorted(ticket.parent.glob("[0-9]*")):
        if other.name >= ticket.name:
            return False
        with suppress(FileNotFoundError), other.open("a") as lock_file:
            if not _take_lock(lock_file):
                return True
            other.unlink(missing_ok=True)
    return False


def _take_lock(lock: TextIO) -> bool:
    """Take the lock if it is free, and keep it until the file is closed. Return whether it was free."""
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True

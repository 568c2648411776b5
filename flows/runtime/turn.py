"""One run at a time in a state folder; who comes meanwhile waits for its turn, in the order of arrival.

A nightly evaluation that comes due while a training goes on runs after it. Who waits holds a lock on a ticket in the
folder, named by the time of its arrival: a ticket that nobody holds is of a process that was killed, and is passed
over. The locks are the kernel's, so no end of a process leaves a folder locked.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TextIO

from models.errors import UserError

WAIT = "REWARDFLOW_WAIT"
"""Seconds that a run waits for those before it; 0: not at all."""
HALF_A_DAY = 43_200.0
PAUSE = 0.5
"""Seconds between two looks."""
QUEUE, LOCK = "queue", "run.lock"


def patience() -> float:
    """Seconds that a run waits for those before it.

    Raises:
        UserError: REWARDFLOW_WAIT is no number of seconds.
    """
    said = os.environ.get(WAIT, "")
    with suppress(ValueError):
        seconds = float(said) if said else HALF_A_DAY
        if seconds >= 0:
            return seconds
    raise UserError(f"{WAIT} is {said!r}; set it to the seconds that a run may wait for another one, 0 for none")


@contextmanager
def only_run(home: Path, wait: float = 0.0, report: Callable[[str], None] = print) -> Iterator[None]:
    """Hold the state folder for one run.

    Args:
        home: the folder.
        wait: seconds to wait at most for those that came before.
        report: given a line for whom it waits, once for each.

    Raises:
        UserError: others hold it for longer.
    """
    home.mkdir(parents=True, exist_ok=True)
    with (home / LOCK).open("a+") as lock:
        with _ticket(home / QUEUE) as ticket:
            until, known, seen = time.monotonic() + wait, "", ""
            while _before(ticket) or not _taken(lock):
                lock.seek(0)
                who = lock.read().strip() or "unknown"
                if time.monotonic() >= until:
                    raise UserError(
                        f"{home}: another run (process {who}) goes on in this folder; wait for it or set "
                        "REWARDFLOW_HOME"
                    )
                # Seen twice: who has just got the lock has yet to write its name over that of the one before.
                if who != known and who == seen:
                    report(f"waiting for the run of process {who} in {home} to end ({WAIT}=0 does not wait)")
                    known = who
                seen = who
                time.sleep(PAUSE)
        lock.truncate(0)
        lock.write(str(os.getpid()))
        lock.flush()
        yield


@contextmanager
def _ticket(queue: Path) -> Iterator[Path]:
    """A place in the queue, held until the turn has come."""
    queue.mkdir(exist_ok=True)
    ticket = queue / f"{time.time_ns():020d}-{os.getpid()}"
    # Locked under another name first: a ticket that is seen without its lock would be taken for a dead one's.
    hidden = ticket.with_name(f".{ticket.name}")
    with hidden.open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        hidden.rename(ticket)
        try:
            yield ticket
        finally:
            ticket.unlink(missing_ok=True)


def _before(ticket: Path) -> bool:
    """Whether somebody who came earlier still waits. Tickets of the dead are removed."""
    for other in sorted(ticket.parent.glob("[0-9]*")):
        if other.name >= ticket.name:
            return False
        with suppress(FileNotFoundError), other.open("a") as held:
            if not _taken(held):
                return True
            other.unlink(missing_ok=True)
    return False


def _taken(lock: TextIO) -> bool:
    """Whether the lock was free; it is ours then, until the file is closed."""
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True

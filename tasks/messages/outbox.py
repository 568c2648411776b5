"""An outbox on the disk: events are stored before they are sent, and sent again until a receiver accepts them.

    outbox/RECEIVER/NUMBER-ID.json            not accepted yet, in the order of the events
    outbox/RECEIVER/sent/NUMBER-ID.json       accepted; kept so that the same event is not sent again
    outbox/RECEIVER/refused/NUMBER-ID.json    the receiver will never accept it

Each receiver has a queue of its own. A kill between the answer and the move sends an event a second time, with the same
id: at least once. The first failure ends a pass over a queue, so the order is kept; the next pass, at the end of the
next run, by the schedule or by `rewardflow messages --send`, begins there.
"""

from __future__ import annotations

import fcntl
import json
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from models.base.atomic_write import write_file
from tasks.messages.event import Event
from tasks.messages.receivers import NotDelivered, Receiver, post

KEEP = 30 * 86_400.0
"""Seconds for which an accepted event is kept."""
PASS = 20.0
"""Time limit of a pass over all queues, seconds: a training does not wait longer for the delivery of its events."""


@dataclass(frozen=True)
class Passed:
    """Result of a pass over all queues."""

    sent: int
    failures: tuple[str, ...]
    """A sentence for each receiver that did not accept an event."""


class Outbox:
    """The outbox of the state folder `home`: one queue of events for each receiver."""

    def __init__(self, home: Path) -> None:
        self._folder = home / "outbox"

    def put(self, event: Event, receivers: Sequence[Receiver]) -> bool:
        """Add an event to the queue of each receiver that does not have it yet; return whether any queue got it.

        Raises:
            OSError, UserError: it cannot be written.
        """
        new = False
        for receiver in receivers:
            queue = self._folder / receiver.name
            queue.mkdir(parents=True, exist_ok=True)
            with _locked(queue, wait=True):
                known = {path.stem.partition("-")[2] for path in queue.rglob("*.json")}
                if event.event_id not in known:
                    numbers = [int(path.name.partition("-")[0]) for path in queue.rglob("*.json")]
                    number = max([time.time_ns(), *(last + 1 for last in numbers)])
                    write_file(queue / f"{number:020d}-{event.event_id}.json", event.as_json())
                    new = True
        return new

    def deliver(self, receivers: Sequence[Receiver], seconds: float = PASS) -> Passed:
        """Send the events that were not accepted yet; skip a queue that another process is sending."""
        until = time.monotonic() + seconds
        sent, failures = 0, []
        for receiver in receivers:
            queue = self._folder / receiver.name
            if not queue.is_dir():
                continue
            with _locked(queue / "sending", wait=False) as ours:
                for path in sorted(queue.glob("*.json")) if ours else ():
                    left = until - time.monotonic()
                    if left <= 0:
                        failures.append(f"{receiver.host}: no time left, the others wait for the next pass")
                        break
                    try:
                        post(receiver, path.read_bytes(), min(left, 5.0))
                    except NotDelivered as error:
                        failures.append(str(error))
                        if not error.for_good:
                            break
                        _move(path, "refused")
                    else:
                        _move(path, "sent")
                        sent += 1
            _forget(queue / "sent")
        return Passed(sent, tuple(failures))

    def listed(self) -> list[tuple[str, str, dict[str, str]]]:
        """Return all events, oldest first: receiver's host, state (waiting, sent, refused), fields of the event."""
        rows = []
        for path in self._folder.glob("*/**/*.json"):
            queue = path.relative_to(self._folder).parts[0]
            state = path.parent.name if path.parent.name in ("sent", "refused") else "waiting"
            rows.append((path.name, queue.rpartition("-")[0], state, json.loads(path.read_bytes())))
        return [row[1:] for row in sorted(rows, key=lambda row: row[0])]


def _move(path: Path, state: str) -> None:
    target = path.parent / state
    target.mkdir(exist_ok=True)
    os.replace(path, target / path.name)


def _forget(folder: Path) -> None:
    for path in folder.glob("*.json"):
        if time.time() - path.stat().st_mtime > KEEP:
            path.unlink(missing_ok=True)


@contextmanager
def _locked(at: Path, wait: bool) -> Iterator[bool]:
    """Hold the lock file of a path. Yield whether it is held: without `wait`, False if another process has it."""
    with at.with_name(f"{at.name}.lock").open("a") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except BlockingIOError:
            yield False
            return
        yield True

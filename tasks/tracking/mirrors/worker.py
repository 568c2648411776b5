"""The thread of a mirror: it writes what the run hands over, and turns the mirror off at the first failure.

The run never waits for a mirror: it puts actions into a queue. A mirror is turned off by any exception, by a queue that
becomes too long, and by not being ready at the end of the run. One warning line reports it, and a tag on the flow's run
(tags.MIRROR_OFF).
"""

from __future__ import annotations

import logging
import os
import re
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path

from models.base.errors import shortened
from tasks.tracking.mirrors.choice import FOLDER
from tasks.tracking.mirrors.mirror import MirrorRun, Place
from tasks.tracking.mirrors.to_tensorboard import TensorBoardRun
from tasks.tracking.mirrors.to_trackio import TrackioRun
from tasks.tracking.mirrors.to_wandb import WandbRun

_LOG = logging.getLogger("rewardflow.tracking")

MOST_WAITING = 20_000
"""Maximum number of actions that wait for a mirror; with more, it is considered stuck."""
MOST_UNFLUSHED = 1000
"""Maximum number of actions after which a mirror writes its buffers."""
_KINDS: Mapping[str, Callable[[Place, Path], MirrorRun]] = {
    "tensorboard": lambda place, home: TensorBoardRun(place, home / FOLDER / "tensorboard"),
    "wandb": lambda place, home: WandbRun(place, home / FOLDER),
    "trackio": lambda place, home: TrackioRun(place, home / FOLDER / "trackio"),
}
_SECRET = re.compile(r"KEY|TOKEN|SECRET|PASSWORD|AUTH", re.IGNORECASE)

Action = Callable[[MirrorRun], None]


class MirrorWorker:
    """The thread of one mirror, for all runs of this process."""

    def __init__(self, name: str, home: Path, turned_off: Callable[[], None]) -> None:
        """Start the thread.

        Args:
            name: name of the mirror.
            home: the state folder.
            turned_off: called once if the mirror fails, in another thread.
        """
        self._name, self._home, self._turned_off = name, home, turned_off
        self.reason = ""
        """Why the mirror is off; empty while it works."""
        self._runs: dict[str, MirrorRun] = {}
        self._waiting: deque[tuple[str, Callable[[], Place] | None, Action]] = deque()
        self._busy = self._stopped = False
        self._changed = threading.Condition()
        threading.Thread(target=self._work, name=f"mirror-{name}", daemon=True).start()

    def put(self, key: str, place: Callable[[], Place], action: Action) -> None:
        """Hand over an action on the run `key`, and return at once; the first action opens the run at its place."""
        with self._changed:
            if self.reason:
                return
            if len(self._waiting) < MOST_WAITING:
                self._waiting.append((key, place, action))
                self._changed.notify_all()
                return
        self.turn_off(f"does not keep up: {MOST_WAITING} entries wait")

    def end(self, key: str, finished: bool) -> None:
        """End the run `key`, if an action opened it; see `MirrorRun.close`."""
        with self._changed:
            if not self.reason:
                self._waiting.append((key, None, lambda run: run.close(finished)))
                self._changed.notify_all()

    def stop(self) -> None:
        """End the thread, after what waits."""
        with self._changed:
            self._stopped = True
            self._changed.notify_all()

    def finish(self, seconds: float) -> bool:
        """Wait until everything is written, for at most `seconds`. Return whether it is, or the mirror is off."""
        deadline = time.monotonic() + seconds
        with self._changed:
            while (self._waiting or self._busy) and not self.reason:
                if not self._changed.wait(max(0.0, deadline - time.monotonic())) and time.monotonic() >= deadline:
                    break
            return not (self._waiting or self._busy) or bool(self.reason)

    def turn_off(self, reason: str) -> None:
        """Turn the mirror off, and warn once."""
        with self._changed:
            if self.reason:
                return
            self.reason = reason
            self._waiting.clear()
            self._changed.notify_all()
        _LOG.warning("the mirror %s is off: %s; the run continues, and MLflow has everything", self._name, reason)
        # In a thread of its own: the tracking server may be away, and the caller must not wait for it.
        threading.Thread(target=self._turned_off, name=f"mirror-{self._name}-off", daemon=True).start()

    def _work(self) -> None:
        unflushed = 0
        while True:
            with self._changed:
                while not (self._waiting or self.reason or self._stopped):
                    self._changed.wait()
                if self.reason or not self._waiting:
                    break
                key, place, action = self._waiting.popleft()
                self._busy = True
            try:
                if place is None:
                    if (ended := self._runs.pop(key, None)) is not None:
                        action(ended)
                else:
                    if key not in self._runs:
                        self._runs[key] = _KINDS[self._name](place(), self._home)
                    action(self._runs[key])
                unflushed += 1
                if not self._waiting or unflushed >= MOST_UNFLUSHED:
                    unflushed = 0
                    for run in self._runs.values():
                        run.flush()
            except BaseException as error:
                self.turn_off(reason_of(error))
            with self._changed:
                self._busy = False
                self._changed.notify_all()
        for run in self._runs.values():
            with suppress(BaseException):
                run.close(finished=False)


def reason_of(error: BaseException) -> str:
    """Return an error as one short line, without the values of variables that hold a secret."""
    text = " ".join(str(error).split())
    for name, value in os.environ.items():
        if _SECRET.search(name) and len(value) >= 6:
            text = text.replace(value, "***")
    text = re.sub(r"(?<=://)[^/\s@]+@", "***@", text)
    return shortened(f"{type(error).__name__}: {text}" if text else type(error).__name__, 200)

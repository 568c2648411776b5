"""Check whether a machine is quiet: the CPU time of other processes during a measurement.

The load average counts the measurement itself and decays slowly; CPU time is counted by process. A process's own time
and that of its ended children are both read, so that a process which ends between two readings is still counted, with
the process that waited for it.
"""

from __future__ import annotations

import os
import time

import psutil

AT_MOST = 0.5
"""Cores that other processes may use on average during a measurement."""
LOOK = 2.0
"""Seconds of the check before a measurement begins."""


class Busy(Exception):
    """Other processes use the processor, so that a measurement would be meaningless."""


def foreign_cpu_seconds(own: int | None = None) -> float:
    """Return the CPU seconds that all processes but `own` and those below it have taken so far.

    Args:
        own: process id; this process if it is left out.
    """
    me = psutil.Process(own or os.getpid())
    mine = {me.pid, *(child.pid for child in me.children(recursive=True))}
    total = 0.0
    for process in psutil.process_iter():
        if process.pid in mine:
            continue
        try:
            total += sum(process.cpu_times()[:4])
        except psutil.Error:
            continue  # it has ended; its time is now its parent's
    return total


class Watch:
    """Counter of the cores that other processes used since it was made."""

    def __init__(self, own: int | None = None) -> None:
        self._own = own
        self._seconds = foreign_cpu_seconds(own)
        self._began = time.perf_counter()

    def cores(self) -> float:
        """Return the cores used on average since then."""
        took = max(0.0, foreign_cpu_seconds(self._own) - self._seconds)
        return took / max(1e-9, time.perf_counter() - self._began)

    def require_quiet(self, when: str) -> float:
        """Return the cores used by others.

        Args:
            when: time for the message, such as "before the measurement".

        Raises:
            Busy: they used more than AT_MOST.
        """
        cores = self.cores()
        if cores > AT_MOST:
            raise Busy(
                f"other processes took {cores:.1f} cores {when} ({AT_MOST} at most): nothing is written; "
                "end them, or pass --busy"
            )
        return cores


def require_quiet_now() -> float:
    """Watch for LOOK seconds. Returns the cores that others used in this time; raises Busy if they are too many."""
    watch = Watch()
    time.sleep(LOOK)
    return watch.require_quiet("before the measurement")

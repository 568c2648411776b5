"""Watch of a server for the death of the command that started it, so that a killed command leaves no server running."""

from __future__ import annotations

import os
import signal
import threading
import time

WATCH_SECONDS = 0.5
"""Seconds between two checks of whether the starter is alive."""


def end_with(starter: int, seconds: float) -> None:
    """Watch the process `starter` in a thread; when it has ended, end the process group that this process leads.

    Args:
        starter: process id of the command that started this one.
        seconds: time for the group to end by itself before it is killed.
    """
    threading.Thread(target=_watch, args=(starter, seconds), daemon=True).start()


def _watch(starter: int, seconds: float) -> None:
    while os.getppid() == starter:
        time.sleep(WATCH_SECONDS)
    os.killpg(os.getpid(), signal.SIGTERM)
    time.sleep(seconds)
    os.killpg(os.getpid(), signal.SIGKILL)

"""A server that watches for the death of the command that started it: one that was killed leaves no server behind."""

from __future__ import annotations

import os
import signal
import threading
import time

WATCH_SECONDS = 0.5
"""Seconds between two looks at whether the command that started it still lives."""


def end_with(starter: int, seconds: float) -> None:
    """End this process, which leads a group of its own, with its whole group when the process `starter` has gone.

    Args:
        starter: process id of the command that started this one.
        seconds: that the group has to end by itself before it is killed.
    """
    threading.Thread(target=_watch, args=(starter, seconds), daemon=True).start()


def _watch(starter: int, seconds: float) -> None:
    while os.getppid() == starter:
        time.sleep(WATCH_SECONDS)
    os.killpg(os.getpid(), signal.SIGTERM)
    time.sleep(seconds)
    os.killpg(os.getpid(), signal.SIGKILL)

"""Which process writes a run, and whether a recorded one still lives: how runs left RUNNING by SIGKILL are found."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping

import psutil

from tasks.tracking import tags

_CLOCK_SLACK = 2.0
"""Seconds by which two readings of one process's start may differ (the boot time is read with rounding)."""


def mark() -> dict[str, str]:
    """Tags that name this process."""
    return {
        tags.PID: str(os.getpid()),
        tags.HOST: socket.gethostname(),
        tags.STARTED: f"{psutil.Process().create_time():.2f}",
    }


def surely_dead(marks: Mapping[str, str]) -> bool:
    """Whether the process named by `marks` ran on this host and is gone. Unknown marks and other hosts: False."""
    try:
        pid, started = int(marks[tags.PID]), float(marks[tags.STARTED])
    except (KeyError, ValueError):
        return False
    if marks.get(tags.HOST) != socket.gethostname():
        return False
    try:
        process = psutil.Process(pid)
        if process.status() == psutil.STATUS_ZOMBIE:
            return True
        return abs(process.create_time() - started) > _CLOCK_SLACK
    except psutil.NoSuchProcess:
        return True
    except psutil.AccessDenied:
        return False

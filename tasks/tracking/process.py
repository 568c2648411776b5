"""Identity of the process that writes a run, by which runs that a killed process left RUNNING are found."""

from __future__ import annotations

import hashlib
import os
import socket
from collections.abc import Mapping
from functools import cache
from pathlib import Path

import psutil

from tasks.tracking import tags

_CLOCK_SLACK = 2.0
"""Seconds by which two readings of one process's start may differ (the boot time is rounded)."""

_OUTERMOST = "pid:[4026531836]"
"""Linux's name of the process namespace of the host, outside of all containers."""


def mark() -> dict[str, str]:
    """Return the tags that identify this process: process id, host, start time and place."""
    return {
        tags.PID: str(os.getpid()),
        tags.HOST: socket.gethostname(),
        tags.STARTED: f"{psutil.Process().create_time():.2f}",
        tags.PLACE: place(),
    }


@cache
def place() -> str:
    """Return this process's place: machine (a hash), boot id and process namespace; "-" for each unknown value."""
    machine = _read("/etc/machine-id")
    hashed = hashlib.sha256(f"rewardflow {machine}".encode()).hexdigest()[:16] if machine else ""
    try:
        namespace = os.readlink("/proc/self/ns/pid")
    except OSError:
        namespace = ""
    return " ".join(part or "-" for part in (hashed, _read("/proc/sys/kernel/random/boot_id"), namespace))


def surely_dead(marks: Mapping[str, str]) -> bool:
    """Return whether the process with these tags certainly has ended.

    The result is False for unknown tags, other hosts and other containers, whose processes cannot be checked. Tags of
    earlier versions, which have no place, are judged by the host name alone.
    """
    try:
        pid, started = int(marks[tags.PID]), float(marks[tags.STARTED])
    except (KeyError, ValueError):
        return False
    if marks.get(tags.HOST) != socket.gethostname():
        return False
    there = marks.get(tags.PLACE, place())
    if there != place():
        return _before_a_restart(there)
    try:
        process = psutil.Process(pid)
        if process.status() == psutil.STATUS_ZOMBIE:
            return True
        return abs(process.create_time() - started) > _CLOCK_SLACK
    except psutil.NoSuchProcess:
        return True
    except psutil.AccessDenied:
        return False


def _before_a_restart(there: str) -> bool:
    """Return whether a place is on this machine, before its last boot.

    This is decided outside of containers only: containers of one image share the machine's id, wherever they run.
    """
    (machine, boot, namespace), here = (*there.split(), "-", "-", "-")[:3], place().split()
    return (
        machine == here[0] != "-"
        and boot != here[1]
        and "-" not in (boot, here[1])
        and (namespace == here[2] == _OUTERMOST)
    )


def _read(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8").strip()
    except OSError:
        return ""

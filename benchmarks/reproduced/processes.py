"""Run a command as a child process: seconds, the most memory that it held, and a kill at a moment."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from models.base.errors import UserError

ROOT = Path(__file__).resolve().parents[2]
POLL = 0.2
"""Seconds between two checks of a process."""


@dataclass(frozen=True)
class ProcessUsage:
    """Time and memory of a process that ended."""

    seconds: float
    peak_gib: float
    """Peak memory of the process or of one that it waited for."""
    killed: bool


def run(
    command: Sequence[str], settings: Mapping[str, str], log: Path, kill_when: Callable[[], object] = lambda: False
) -> ProcessUsage:
    """Run a command to its end, or kill it (SIGKILL) at the first moment in which `kill_when` is true.

    Raises:
        UserError: the command fails; the line names its log.
    """
    began, killed = time.monotonic(), False
    paths = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "HF_HUB_OFFLINE": "1", **settings}
    with log.open("a", encoding="utf-8") as file:
        process = subprocess.Popen(command, cwd=ROOT, env=environment, stdout=file, stderr=subprocess.STDOUT)
        usage = None
        while usage is None:
            pid, status, resources = os.wait4(process.pid, os.WNOHANG)
            if pid:
                usage, process.returncode = resources, os.waitstatus_to_exitcode(status)
            elif not killed and kill_when():
                process.kill()
                killed = True
            else:
                time.sleep(POLL)
    if process.returncode and not killed:
        raise UserError(f"{log}: {' '.join(command[:6])} ended with exit status {process.returncode}")
    return ProcessUsage(time.monotonic() - began, usage.ru_maxrss / 2**20, killed)

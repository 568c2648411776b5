"""Runs of the `dvc` command line of this interpreter in a repository, one at a time, with errors of one line."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil

import models
from models.base.disk import state_folder
from models.base.errors import UserError
from models.datasets.params import ERROR_PREFIX
from tasks.data import dvc_remote
from tasks.runner.deadline import TookTooLong

Report = Callable[[str], None]

HINTS = (
    *("To track the changes", "git add ", "To enable auto staging", "dvc config core.autostage", "Use `dvc push`"),
    *("> ", "Generating lock file", "Updating lock file"),
)
"""Beginnings of lines of DVC's output that are not reported: advice on git, and notes on DVC's own files."""


@contextmanager
def repository_lock(root: Path) -> Iterator[int]:
    """Hold the repository's lock on data commands; yield the file descriptor of the lock.

    DVC itself gives up at once if another one runs the same stage. It inherits the descriptor, so that the next run
    also waits for a DVC whose own caller was killed.
    """
    path = root / ".dvc" / "tmp" / "rewardflow.lock"
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield file.fileno()


def _environment() -> dict[str, str]:
    """Return the environment of DVC and its stages: `python` is this interpreter, and the project can be imported."""
    here = dict(os.environ)
    package = str(Path(models.__path__[0]).parent)
    here["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), here.get("PATH", os.defpath)])
    here["PYTHONPATH"] = os.pathsep.join(filter(None, [package, here.get("PYTHONPATH")]))
    here["PYTHONUNBUFFERED"] = "1"
    here["REWARDFLOW_HOME"] = str(state_folder())  # a stage runs in another folder, and reads hub data there
    for key, value in (
        ("DVC_NO_ANALYTICS", "1"),
        ("AWS_REQUEST_CHECKSUM_CALCULATION", "when_required"),
        ("AWS_RESPONSE_CHECKSUM_VALIDATION", "when_required"),
    ):
        here.setdefault(key, value)
    return here


def run_dvc(root: Path, arguments: list[str], report: Report, lock: int) -> None:
    """Run a DVC command and report its output without hints and errors. Raise UserError of one line if it fails."""
    lines: list[str] = []
    with (
        dvc_remote.on_the_command_line(arguments) as (words, settings),
        subprocess.Popen(
            [sys.executable, "-m", "dvc", "--wait-for-lock", *words],
            cwd=root,
            env=_environment() | settings,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            pass_fds=[lock],
        ) as process,
    ):
        assert process.stdout is not None
        try:
            for line in process.stdout:
                lines.append(line.strip())
                failure = line.startswith((ERROR_PREFIX, "ERROR: failed to reproduce"))  # becomes the UserError
                if line.strip() and not failure and not line.strip().startswith(HINTS):
                    report(line.rstrip())
        except TookTooLong:
            # DVC and its stage receive a Ctrl-C themselves, but not a time-out.
            stages = psutil.Process(process.pid).children(recursive=True)
            process.terminate()
            for stage in stages:
                stage.terminate()
            raise
    if process.returncode:
        raise UserError(_reason(arguments[0], lines, process.returncode))


def _reason(command: str, lines: list[str], status: int) -> str:
    """Return the reason of a failure in one line: the stage's error, else DVC's first error, else the exit status."""
    for line in reversed(lines):
        if line.startswith(ERROR_PREFIX):
            return line.removeprefix(ERROR_PREFIX)
    first = next((line.removeprefix("ERROR: ") for line in lines if line.startswith("ERROR: ")), None)
    return f"dvc {command}: {first or f'ended with exit status {status}'}"

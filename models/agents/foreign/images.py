"""Servers of OpenEnv from images: started by docker or podman, once per process, and removed at its end."""

from __future__ import annotations

import atexit
import shutil
import subprocess
import time
from functools import cache

from models.base.errors import UserError, last_line, shortened
from models.base.http_answers import answer_here
from models.sandbox.engines import ENGINES

PORT = 8000
"""Port of the server inside of its container, as in all images of OpenEnv."""
TO_START = 120.0
"""Seconds that a server may take until it answers."""


@cache
def address_of(image: str, setting: str) -> str:
    """Start a container of an image, on a port of loopback, and return the address of its server.

    Args:
        image: name of an image that is on this machine, or that its registry has.
        setting: key of the recipe that names it, for error messages.

    Raises:
        UserError: neither docker nor podman is installed, the container cannot be started, or does not answer.
    """
    program = next((path for name in ENGINES if (path := shutil.which(name)) is not None), None)
    if program is None:
        raise UserError(
            f"{setting}: {shortened(image)} needs docker or podman, and neither is installed; start the server without "
            "one and name its address (url)"
        )
    started = _run(program, "run", "--detach", "--rm", "--publish", f"127.0.0.1::{PORT}", image)
    if started.returncode:
        raise UserError(f"{setting}: {shortened(image)} cannot be started ({_last_output(started)})")
    container = started.stdout.strip()
    atexit.register(_run, program, "rm", "--force", container)
    published = _run(program, "port", container, str(PORT)).stdout.strip().splitlines()
    address = f"http://{published[0]}" if published else ""
    limit = time.monotonic() + TO_START
    while not address or answer_here(f"{address}/health") is None:
        if not address or time.monotonic() > limit or _run(program, "port", container).returncode:
            logs = _run(program, "logs", "--tail", "1", container)
            _run(program, "rm", "--force", container)
            raise UserError(f"{setting}: the server of {shortened(image)} does not answer ({_last_output(logs)})")
        time.sleep(0.2)
    return address


def _run(*command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)


def _last_output(result: subprocess.CompletedProcess[str]) -> str:
    return last_line(result.stderr) or last_line(result.stdout) or "it printed nothing"

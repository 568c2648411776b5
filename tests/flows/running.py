"""Functions with which the tests of flows start, query and end real processes."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
DIRECT = urllib.request.build_opener(urllib.request.ProxyHandler({}))


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def ask(url: str, body: dict[str, Any] | None = None) -> Any:
    """Return the JSON of a GET, or of a POST if there is a body. Repeat the request while the server is busy (503)."""
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data=data, headers={"Content-Type": "application/json"})
    for pause in (0.5, 1, 2, 4, 8):
        try:
            with DIRECT.open(request, timeout=30) as answer:
                return json.loads(answer.read() or "null")
        except urllib.error.HTTPError as error:
            if error.code != 503:
                raise
            time.sleep(pause)
    pytest.fail(f"{url} stays busy")


def wait_for(what: str, seen: Callable[[], Any], process: subprocess.Popen[str] | None = None) -> Any:
    """Return the first true value of `seen`. Fail after three minutes, or if the process ends before."""
    deadline = time.monotonic() + 180
    while time.monotonic() < deadline:
        if value := seen():
            return value
        if process is not None and process.poll() is not None:
            pytest.fail(f"the process ended ({process.returncode}) before {what}: {process.communicate()[0]}")
        time.sleep(0.02)
    pytest.fail(f"waited in vain for {what}")


def shell() -> dict[str, str]:
    """Return the environment without the variables that name this process's Prefect, MLflow and state folder.

    An earlier test may have chosen a store.
    """
    ours = ("REWARDFLOW_HOME", "REWARDFLOW_STARTER", "MLFLOW_TRACKING", "MLFLOW_REGISTRY")
    prefects = ("PREFECT_API", "PREFECT_HOME", "PREFECT_LOCAL_STORAGE", "PREFECT_MEMO_STORE")
    return {name: value for name, value in os.environ.items() if not name.startswith(ours + prefects)}


_PROGRAMS = """
PATH="$(dirname "$PYTHON"):$PATH"
rewardflow() { "$PYTHON" -m flows.command_line "$@"; }
mlflow() { "$PYTHON" -m mlflow "$@"; }
prefect() { "$PYTHON" -m prefect "$@"; }
dvc() { "$PYTHON" -m dvc "$@"; }
set -e -o pipefail
"""
"""Shell functions that run the programs of this environment, with the code of the working directory."""


def type_in(commands: Sequence[str], folder: Path, **extra: str) -> subprocess.CompletedProcess[str]:
    """Run commands in one shell in `folder`, as a reader of the guide would. It ends at the first that fails."""
    return subprocess.run(
        ["bash", "-c", _PROGRAMS + "\n".join(commands)],
        cwd=folder,
        env={**shell(), "PYTHON": sys.executable, "PYTHONUNBUFFERED": "1", **extra},
        capture_output=True,
        text=True,
        timeout=1800,
    )


def start_python(code: str, home: Path, **extra: str) -> subprocess.Popen[str]:
    """Start a Python process with the state folder `home` and captured output. The caller ends it."""
    return subprocess.Popen(
        [sys.executable, "-c", code],
        cwd=home,
        env={**shell(), "REWARDFLOW_HOME": str(home), "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1", **extra},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def end(process: subprocess.Popen[str]) -> str:
    """Send SIGTERM to a process. Return its output."""
    process.send_signal(signal.SIGTERM)
    return process.communicate(timeout=90)[0]


@dataclass(frozen=True)
class Pair:
    """The servers that `rewardflow ui` starts, and the process that runs them."""

    home: Path
    mlflow: str
    prefect: str
    process: subprocess.Popen[str]


def start_pair(home: Path) -> Pair:
    mlflow, prefect = free_port(), free_port()
    code = (
        "from flows.runtime.environment import state_folder; from flows.servers.servers import serve; "
        f"serve(state_folder(), mlflow_port={mlflow}, prefect_port={prefect})"
    )
    process = start_python(code, home)
    lines: list[str] = []
    assert process.stdout is not None
    for line in process.stdout:  # the loop also ends when the process ends
        lines.append(line)
        if "Ctrl-C" in line:
            return Pair(home, f"http://127.0.0.1:{mlflow}", f"http://127.0.0.1:{prefect}", process)
    pytest.fail("the servers did not start: " + "".join(lines))

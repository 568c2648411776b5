"""Start and end of a server process in its own process group, which includes its workers.

The caller records it (flows/servers/server_record.py). A server is ended by means of that record; a process whose start
time differs from the record is left alone.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import psutil

from flows.servers.server_record import HOST, Server, record, recorded
from models.base.errors import UserError
from models.base.http_answers import answer_here

START_SECONDS = 180.0
"""Time limit for a server's first answer, seconds: the first start creates its database, slowly on a busy machine."""
END_SECONDS = 15.0
"""Time that a server has to end before it is killed, seconds."""

FOREIGN = ("PREFECT_API_URL", "MLFLOW_TRACKING_URI")
"""Client settings that would make a server connect to another server, or to itself."""
LASTING_LEASES = {
    # On disk, so that the slot of a killed run is freed even if the server was ended since.
    "PREFECT_SERVER_CONCURRENCY_LEASE_STORAGE": "prefect.server.concurrency.lease_storage.filesystem"
}

HEALTH = {"mlflow": "/health", "prefect": "/api/health"}
"""Path of a server's health check, below its address."""

_GENTLE = {"database": signal.SIGINT}
"""Signal that asks a server to end; SIGTERM if not listed. At a SIGTERM, PostgreSQL waits for its clients."""


def port_is_free(port: int) -> bool:
    """Whether a server could listen on this port of 127.0.0.1 now."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
    return True


def launch(
    name: str,
    command: Sequence[str],
    port: int,
    log: Path,
    environment: Mapping[str, str],
    *,
    cwd: Path,
    identity: Mapping[str, Any] | None = None,
) -> Server:
    """Start a server as the leader of its own process group.

    Args:
        name: its name in the record.
        command: its command line. Every user of the machine can read it: it must not contain secrets.
        port: the port of 127.0.0.1 on which it will listen.
        log: file of its output; earlier content is overwritten.
        environment: its whole environment.
        cwd: its working directory.
        identity: `user`, `group` and `extra_groups` for `subprocess`, if it runs as another user.
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("w") as words:
        child = subprocess.Popen(
            command,
            cwd=cwd,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=words,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            **(identity or {}),
        )
    return Server(name, f"http://{HOST}:{port}", child.pid, psutil.Process(child.pid).create_time(), str(log))


def wait_until_healthy(
    server: Server,
    healthy: Callable[[], bool] | None = None,
    seconds: float = START_SECONDS,
    cause: Callable[[str], str] | None = None,
) -> None:
    """Wait until a server that was just started answers.

    Args:
        server: the server.
        healthy: whether it answers; None: request its health page.
        seconds: time limit.
        cause: returns the reason of its end from its log; None: the last line.

    Raises:
        UserError: it ended, or did not answer within the time limit; the message names its log.
    """
    asks = healthy or (lambda: answer_here(server.address + HEALTH[server.name]) is not None)
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if server.process() is None:
            words = (cause or _last_line)(server.log)
            raise UserError(f"the {server.name} server ended while starting: {words} (log: {server.log})")
        if asks():
            return
        time.sleep(0.2)
    raise UserError(f"the {server.name} server did not answer within {seconds:.0f} s (log: {server.log})")


def end(servers: Mapping[str, Server], folder: Path) -> None:
    """End the process groups of servers, kill what is left, and delete the servers from the record of `folder`."""
    live = {name: process for name, server in servers.items() if (process := server.process())}
    for name, process in live.items():
        _signal_group(process.pid, _GENTLE.get(name, signal.SIGTERM))
    psutil.wait_procs(list(live.values()), timeout=END_SECONDS)
    workers = _groups([server.pid for server in servers.values() if not _is_anothers(server)])
    for group in {group for group, _ in workers}:  # those that outlived their leader
        _signal_group(group, signal.SIGKILL)
    psutil.wait_procs([process for _, process in workers], timeout=END_SECONDS)  # until their ports are free
    ended = {server.pid for server in servers.values()}
    record(folder, {name: server for name, server in recorded(folder).items() if server.pid not in ended})


def _groups(leaders: Collection[int]) -> list[tuple[int, psutil.Process]]:
    """Return the live processes of some groups, each with its group."""
    members = []
    for process in psutil.process_iter():
        with contextlib.suppress(OSError, psutil.Error):
            group = os.getpgid(process.pid)
            if group in leaders and process.status() != psutil.STATUS_ZOMBIE:
                members.append((group, process))
    return members


def _is_anothers(server: Server) -> bool:
    """Whether the process id of a server now belongs to another process. A leader with workers keeps its id."""
    try:
        return abs(psutil.Process(server.pid).create_time() - server.started) >= 1.0
    except psutil.Error:
        return False


def _last_line(log: str) -> str:
    lines = [line.strip() for line in Path(log).read_text(errors="replace").splitlines() if line.strip()]
    return lines[-1] if lines else "it wrote nothing"


def _signal_group(group: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, number)

"""One server as a process of ours: launched in a group of its own, waited for until it answers, ended with its workers.

The caller records it (flows/servers/server_record.py). A server is ended by that record, and a process whose start time
does not agree with it is left alone.
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
from models.errors import UserError
from models.http_answers import answer_here

START_SECONDS = 180.0
"""How long a server may take until it answers: the first start makes its database, on a busy machine slowly."""
END_SECONDS = 15.0
"""How long a server may take to end by itself before it is killed."""

FOREIGN = ("PREFECT_API_URL", "MLFLOW_TRACKING_URI")
"""Settings of a client, which would make a server talk to another one, or to itself."""
LASTING_LEASES = {
    # On the disk, so that a slot that a killed run held is given back even where the server was ended meanwhile.
    "PREFECT_SERVER_CONCURRENCY_LEASE_STORAGE": "prefect.server.concurrency.lease_storage.filesystem"
}

HEALTH = {"mlflow": "/health", "prefect": "/api/health"}
"""Where a server says that it is well, below its address."""

_GENTLE = {"database": signal.SIGINT}
"""What asks a server to end; SIGTERM where it is not named. PostgreSQL waits for its clients at a SIGTERM."""


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
    """Start a server that leads a process group of its own.

    Args:
        name: as it is recorded.
        command: its command line. Anybody on the machine can read it: nothing secret belongs there.
        port: of 127.0.0.1, where it will listen.
        log: its output goes there, in place of what was in it.
        environment: its whole environment.
        cwd: its working directory.
        identity: `user`, `group` and `extra_groups` for `subprocess`, where it is not to run as we do.
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
    """Wait until a server that was started answers.

    Args:
        server: the server.
        healthy: asks it; where it is None, its page of health is asked.
        seconds: that it may take.
        cause: says why it ended, from its log; where it is None, the last line does.

    Raises:
        UserError: it ended, or stayed silent for so long; the text names its log.
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
    """Ask each group to end, kill what is left, and take them out of the record of `folder`."""
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
    """The live processes of some groups, each with its group."""
    members = []
    for process in psutil.process_iter():
        with contextlib.suppress(OSError, psutil.Error):
            group = os.getpgid(process.pid)
            if group in leaders and process.status() != psutil.STATUS_ZOMBIE:
                members.append((group, process))
    return members


def _is_anothers(server: Server) -> bool:
    """Whether the id of a server's process belongs to another process by now. No leader's does while it has workers."""
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

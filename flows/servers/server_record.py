"""Record of a folder's servers: every server that is started is written to `servers.json` in the folder.

A process counts as the recorded one only if its start time agrees too, because process ids are reused.
"""

from __future__ import annotations

import json
import socket
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

import psutil

from models.base.atomic_write import write_file

HOST = "127.0.0.1"


@dataclass(frozen=True)
class Server:
    """One server: `mlflow` or `prefect`, or one of the services (`database`, `store`)."""

    name: str
    address: str
    pid: int
    """Process id; 0: started by others, and named by the environment."""
    started: float
    """Start time of the process, seconds since 1970."""
    log: str

    @property
    def given(self) -> bool:
        """Whether it was started by others and is named by the environment."""
        return self.pid == 0

    @property
    def port(self) -> int:
        """Port on which the server listens."""
        return int(self.address.rsplit(":", 1)[1])

    def process(self) -> psutil.Process | None:
        """Return the live process, or None if it has ended or its id now belongs to another process."""
        try:
            process = psutil.Process(self.pid)
            same = abs(process.create_time() - self.started) < 1.0 and process.status() != psutil.STATUS_ZOMBIE
        except psutil.Error:
            return None
        return process if same else None


def running_servers(home: Path) -> dict[str, Server]:
    """Return the recorded servers of the state folder `home` that are alive and accept connections, by name."""
    return {name: server for name, server in recorded(home).items() if server.process() and _accepts(server.port)}


def recorded(home: Path) -> dict[str, Server]:
    """Return the servers recorded in the folder `home`, alive or not, by name."""
    try:
        return {row["name"]: Server(**row) for row in json.loads((home / "servers.json").read_text())}
    except (OSError, ValueError, TypeError, KeyError):
        return {}  # no record, or a broken one, which the next start replaces


def record(home: Path, servers: Mapping[str, Server]) -> None:
    """Write the servers of the state folder `home`, replacing the earlier record. Without servers, delete the file."""
    path = home / "servers.json"
    if not servers:
        path.unlink(missing_ok=True)
        return
    write_file(path, json.dumps([asdict(server) for server in servers.values()], indent=2) + "\n")


def _accepts(port: int) -> bool:
    with socket.socket() as probe:
        probe.settimeout(1.0)
        return probe.connect_ex((HOST, port)) == 0

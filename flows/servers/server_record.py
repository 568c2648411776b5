"""Which servers run over a state folder: what was started is written to `servers.json` there, whoever started it.

A process is believed to be the recorded one only where its start time agrees too, because process ids are used again.
"""

from __future__ import annotations

import json
import socket
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

import psutil

from models.atomic_write import write_file

HOST = "127.0.0.1"


@dataclass(frozen=True)
class Server:
    """One running server: `mlflow` or `prefect`."""

    name: str
    address: str
    pid: int
    """0: not ours, the environment names it."""
    started: float
    """Start time of the process, seconds since 1970."""
    log: str

    @property
    def given(self) -> bool:
        """Whether it is not ours but one that the environment names."""
        return self.pid == 0

    @property
    def port(self) -> int:
        """The port it listens on."""
        return int(self.address.rsplit(":", 1)[1])

    def process(self) -> psutil.Process | None:
        """The live process, or None where it has ended or its id now belongs to another."""
        try:
            process = psutil.Process(self.pid)
            same = abs(process.create_time() - self.started) < 1.0 and process.status() != psutil.STATUS_ZOMBIE
        except psutil.Error:
            return None
        return process if same else None


def running_servers(home: Path) -> dict[str, Server]:
    """The recorded servers of the state folder `home` that live and accept connections, by name."""
    return {name: server for name, server in recorded(home).items() if server.process() and _accepts(server.port)}


def recorded(home: Path) -> dict[str, Server]:
    """The servers that the state folder `home` has a record of, alive or not, by name."""
    try:
        return {row["name"]: Server(**row) for row in json.loads((home / "servers.json").read_text())}
    except (OSError, ValueError, TypeError, KeyError):
        return {}  # none, or a broken one, which the next start replaces


def record(home: Path, servers: Mapping[str, Server]) -> None:
    """Write down the servers of the state folder `home`, in place of those before; none leave no file."""
    path = home / "servers.json"
    if not servers:
        path.unlink(missing_ok=True)
        return
    write_file(path, json.dumps([asdict(server) for server in servers.values()], indent=2) + "\n")


def _accepts(port: int) -> bool:
    with socket.socket() as probe:
        probe.settimeout(1.0)
        return probe.connect_ex((HOST, port)) == 0

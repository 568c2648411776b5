"""The two servers a person looks at, MLflow and Prefect, over the state folder: start, find, end.

A server that the environment names (PREFECT_API_URL, MLFLOW_TRACKING_URI) is used as it is, neither started nor ended.
Ours listen on 127.0.0.1 only and each leads a process group of its own, so that ending one ends all its workers. What
runs is recorded in the state folder (flows/server_record.py).
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import FrameType
from urllib.parse import urlparse

import psutil

from flows.environment import (
    MLFLOW_PORT,
    PREFECT_PORT,
    STARTER,
    artifact_folder,
    prefect_folders,
    tracking_database,
)
from flows.server_record import HOST, Server, record, recorded, running_servers
from models.errors import UserError
from tasks.tracking import moved
from tasks.tracking.store import wished

START_SECONDS = 180.0
"""How long a server may take until it answers: the first start makes its database, on a busy machine slowly."""
END_SECONDS = 15.0
"""How long a server may take to end by itself before it is killed."""


# ---------------------------------------------------------------------------------------------------- what is running


def given_servers(home: Path) -> dict[str, Server]:
    """The servers that the environment names and that are not those recorded in `home`, by name."""
    named = {"prefect": os.environ.get("PREFECT_API_URL", ""), "mlflow": wished()}
    own = {server.address for server in recorded(home).values()}
    plain = {name: uri.rstrip("/").removesuffix("/api") for name, uri in named.items() if uri.startswith("http")}
    return {name: Server(name, at, pid=0, started=0.0, log="") for name, at in plain.items() if at not in own}


def page_address(home: Path, name: str) -> str:
    """Where the pages of a server are or, where none is known, will be after `rewardflow ui`."""
    known = {**running_servers(home), **given_servers(home)}
    port = {"mlflow": MLFLOW_PORT, "prefect": PREFECT_PORT}[name]
    return known[name].address if name in known else f"http://{HOST}:{port}"


def port_is_free(port: int) -> bool:
    """Whether a server could listen on this port of 127.0.0.1 now."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
    return True


# -------------------------------------------------------------------------------------------------------- start and end


@contextlib.contextmanager
def serving(
    home: Path, mlflow_port: int = MLFLOW_PORT, prefect_port: int = PREFECT_PORT, say: Callable[[str], None] = print
) -> Iterator[dict[str, Server]]:
    """Both servers, healthy, by name. Those that the environment names and those that run already are used as they are;
    the others are started and ended.

    Raises:
        UserError: a server that the environment names does not answer, a port is in use, or a server ended or stayed
            silent while it was started; the text names its log.
    """
    given = given_servers(home)
    for server in given.values():
        _check_given(server)
    there = {**running_servers(home), **given}
    ports = {"mlflow": mlflow_port, "prefect": prefect_port}
    missing = {name: port for name, port in ports.items() if name not in there}
    for name, port in missing.items():
        if not port_is_free(port):
            title = {"mlflow": "MLflow", "prefect": "Prefect"}[name]
            raise UserError(
                f"port {port} is in use, so the {title} server cannot start: choose another with --{name}-port"
            )
    if "mlflow" in missing and not wished():
        moved.follow(home.absolute())  # the server reads artifacts where the database says
    started: dict[str, Server] = {}
    try:
        for name, port in missing.items():
            say(f"Starting the {name} server on port {port} ...")
            started[name] = _launch(name, port, home)
            record(home, {**running_servers(home), **started})
        for server in started.values():
            wait_until_healthy(server)
        yield {**there, **started}
    finally:
        _end(started, home)


def end_servers(home: Path) -> list[str]:
    """End the recorded servers that are alive, whoever started them. Returns their names."""
    alive = {name: server for name, server in recorded(home).items() if server.process()}
    _end(alive, home)
    return list(alive)


def end_orphans(home: Path) -> list[int]:
    """End the temporary Prefect servers of `home` that a killed run left behind. Returns their process ids."""
    orphans = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            marks = process.environ()
            temporary = marks.get("PREFECT__SERVER_EPHEMERAL") == "1" and marks.get("PREFECT_HOME") == f"{home}/prefect"
            if temporary and marks.get(STARTER, str(process.ppid())) != str(process.ppid()):
                process.terminate()
                orphans.append(process)
    psutil.wait_procs(orphans, timeout=END_SECONDS)
    return [process.pid for process in orphans]


def serve(home: Path, mlflow_port: int = MLFLOW_PORT, prefect_port: int = PREFECT_PORT) -> None:
    """Run both servers until Ctrl-C or SIGTERM, printing their addresses. Returns at once where both run already."""
    there = {**running_servers(home), **given_servers(home)}
    if len(there) == 2:
        print("Both servers are running already:")
        print(addresses(there))
        return
    with servers_end_with_us(), serving(home, mlflow_port, prefect_port) as both:
        print(f"\n{addresses(both)}\n\nCtrl-C ends what was started here.", flush=True)
        ours = [server for server in both.values() if not server.given]
        while all(server.process() for server in ours):
            time.sleep(0.5)
        gone = next(server for server in ours if not server.process())
        raise UserError(f"the {gone.name} server ended by itself; its last words are in {gone.log}")
    print("Ended.")


def addresses(servers: Mapping[str, Server]) -> str:
    """One line for each server: what it is for and where to look."""
    what = {"mlflow": "MLflow (runs, models)", "prefect": "Prefect (schedules)"}
    return "\n".join(f"  {what[name]:<22} {server.address}" for name, server in sorted(servers.items()))


@contextlib.contextmanager
def servers_end_with_us() -> Iterator[None]:
    """Inside, SIGTERM is like Ctrl-C: it leaves the block quietly, and no later signal disturbs the ending."""

    def interrupt(number: int, frame: FrameType | None) -> None:
        for ending in before:
            signal.signal(ending, signal.SIG_IGN)
        raise KeyboardInterrupt

    before = {number: signal.signal(number, interrupt) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        with contextlib.suppress(KeyboardInterrupt):
            yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _command(name: str, port: int, home: Path) -> list[str]:
    where = ["--host", HOST, "--port", str(port)]
    if name == "prefect":
        return [sys.executable, "-m", "prefect", "server", "start", *where]
    database = wished() or tracking_database(home)  # a server's address does not come here: nothing is started for it
    store = ["--backend-store-uri", database, "--default-artifact-root", str(artifact_folder(home))]
    return [sys.executable, "-m", "mlflow", "server", *where, *store, "--workers", "1"]


def _launch(name: str, port: int, home: Path) -> Server:
    logs = home / "logs"
    logs.mkdir(parents=True, exist_ok=True)
    log = logs / f"{name}-server.log"
    # A client's settings would make the servers talk to another server, or to themselves.
    foreign = ("PREFECT_API_URL", "MLFLOW_TRACKING_URI")
    inherited = {key: value for key, value in os.environ.items() if key not in foreign}
    environment = {
        **prefect_folders(home),
        "PREFECT_SERVER_LOGGING_LEVEL": "WARNING",
        # On the disk, so that a slot that a killed run held is given back even where the server was ended meanwhile.
        "PREFECT_SERVER_CONCURRENCY_LEASE_STORAGE": "prefect.server.concurrency.lease_storage.filesystem",
    }
    if not {"PREFECT_UI_API_URL", "PREFECT_SERVER_UI_API_URL"} & set(inherited):
        # Else the page asks port 4200, wherever the server listens, and stays blank.
        environment["PREFECT_SERVER_UI_API_URL"] = f"http://{HOST}:{port}/api"
    with log.open("w") as words:
        child = subprocess.Popen(
            _command(name, port, home),
            cwd=home,
            env={**environment, **inherited},
            stdin=subprocess.DEVNULL,
            stdout=words,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    started = psutil.Process(child.pid).create_time()
    return Server(name, f"http://{HOST}:{port}", child.pid, started, str(log))


def _check_given(server: Server) -> None:
    variable = {"mlflow": "MLFLOW_TRACKING_URI", "prefect": "PREFECT_API_URL"}[server.name]
    local = urlparse(server.address).hostname in (HOST, "localhost", "::1")
    opener = urllib.request.build_opener(*([urllib.request.ProxyHandler({})] if local else []))
    try:
        opener.open(server.address, timeout=20).close()
    except urllib.error.HTTPError:
        return  # it answers; what it lets us do is its own affair
    except (OSError, ValueError) as error:
        raise UserError(
            f"{variable} names {server.address}, which does not answer ({error}); start it, or unset {variable}"
        ) from None


def wait_until_healthy(server: Server) -> None:
    """Wait until a server that was started answers.

    Raises:
        UserError: it ended, or stayed silent for START_SECONDS; the text names its log.
    """
    url = server.address + {"mlflow": "/health", "prefect": "/api/health"}[server.name]
    direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))  # never through a proxy to 127.0.0.1
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        if server.process() is None:
            words = _last_line(server.log)
            raise UserError(f"the {server.name} server ended while starting: {words} (log: {server.log})")
        with contextlib.suppress(OSError), direct.open(url, timeout=5) as answer:
            if answer.status == 200:
                return
        time.sleep(0.2)
    raise UserError(f"the {server.name} server did not answer within {START_SECONDS:.0f} s (log: {server.log})")


def _last_line(log: str) -> str:
    lines = [line.strip() for line in Path(log).read_text(errors="replace").splitlines() if line.strip()]
    return lines[-1] if lines else "it wrote nothing"


def _end(servers: Mapping[str, Server], home: Path) -> None:
    """SIGTERM to each group, SIGKILL to what is left, and out of the record."""
    live = {name: process for name, server in servers.items() if (process := server.process())}
    for process in live.values():
        _signal_group(process.pid, signal.SIGTERM)
    psutil.wait_procs(list(live.values()), timeout=END_SECONDS)
    for server in servers.values():
        # Workers that outlived their leader; unless the leader's id belongs to a new process by now.
        if server.process() or not psutil.pid_exists(server.pid):
            _signal_group(server.pid, signal.SIGKILL)
    ended = {server.pid for server in servers.values()}
    record(home, {name: server for name, server in recorded(home).items() if server.pid not in ended})


def _signal_group(group: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, number)

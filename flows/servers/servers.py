"""The servers with a UI, MLflow and Prefect, over the state folder: start, find, end.

A server that the environment names (PREFECT_API_URL, MLFLOW_TRACKING_URI) is used as it is, neither started nor ended.
Our servers listen on 127.0.0.1 only, and each leads its own process group, so that ending one ends all its workers.
Running servers are recorded in the state folder (flows/servers/server_record.py).
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import FrameType
from urllib.parse import urlparse

import psutil

from flows.runtime.environment import (
    MLFLOW_PORT,
    PREFECT_PORT,
    STARTER,
    artifact_folder,
    prefect_folders,
    tracking_database,
)
from flows.servers.server_process import (
    END_SECONDS,
    FOREIGN,
    LASTING_LEASES,
    end,
    launch,
    port_is_free,
    wait_until_healthy,
)
from flows.servers.server_record import HOST, Server, record, recorded, running_servers
from models.base.errors import UserError
from models.base.http_answers import DIRECT, NO_ANSWER
from tasks.host.plain_address import required
from tasks.tracking import moved, schema
from tasks.tracking.store import configured_address

# ---------------------------------------------------------------------------------------------------- what is running


def given_server(home: Path, name: str) -> Server | None:
    """Return a server that the environment names and that is not recorded in `home`.

    Raises:
        UserError: its address contains a password.
    """
    uri = (
        configured_address() if name == "mlflow" else required("PREFECT_API_URL", os.environ.get("PREFECT_API_URL", ""))
    )
    address = uri.rstrip("/").removesuffix("/api")
    if not uri.startswith("http") or address in {server.address for server in recorded(home).values()}:
        return None
    return Server(name, address, pid=0, started=0.0, log="")


def given_servers(home: Path) -> dict[str, Server]:
    """Return the servers, MLflow or Prefect, that the environment names, by name. Raises as `given_server` does."""
    both = {name: given_server(home, name) for name in ("prefect", "mlflow")}
    return {name: server for name, server in both.items() if server is not None}


def page_address(home: Path, name: str) -> str:
    """Return the address of a server's UI; if none runs, the one that it would have after `rewardflow ui`."""
    known = {**running_servers(home), **given_servers(home)}
    port = {"mlflow": MLFLOW_PORT, "prefect": PREFECT_PORT}[name]
    return known[name].address if name in known else f"http://{HOST}:{port}"


# -------------------------------------------------------------------------------------------------------- start and end


@contextlib.contextmanager
def serving(
    home: Path, mlflow_port: int = MLFLOW_PORT, prefect_port: int = PREFECT_PORT, say: Callable[[str], None] = print
) -> Iterator[dict[str, Server]]:
    """Ensure that the MLflow and Prefect servers run inside the block. Yields both by name.

    Those that the environment names and those that already run are used as they are; the others are started and ended.

    Raises:
        UserError: a server that the environment names does not answer, a port is in use, MLflow's tables are of another
            version of it, or a server ended or did not answer during its start; the message names its log.
    """
    given = given_servers(home)
    for server in given.values():
        check_given(server)
    running = {**running_servers(home), **given}
    ports = {"mlflow": mlflow_port, "prefect": prefect_port}
    missing = {name: port for name, port in ports.items() if name not in running}
    for name, port in missing.items():
        if not port_is_free(port):
            title = {"mlflow": "MLflow", "prefect": "Prefect"}[name]
            raise UserError(
                f"port {port} is in use, so the {title} server cannot start: choose another with --{name}-port"
            )
    if "mlflow" in missing and not configured_address():
        schema.require_current(home.absolute())
        moved.update_addresses(home.absolute())  # the server reads artifacts at the paths in the database
    started: dict[str, Server] = {}
    try:
        for name, port in missing.items():
            say(f"Starting the {name} server on port {port} ...")
            started[name] = _launch(name, port, home)
            record(home, {**running_servers(home), **started})
        for server in started.values():
            wait_until_healthy(server)
        yield {**running, **started}
    finally:
        end(started, home)


def end_servers(home: Path) -> list[str]:
    """End the recorded servers that are alive, whichever process started them. Returns their names."""
    alive = {name: server for name, server in recorded(home).items() if server.process()}
    end(alive, home)
    return list(alive)


def end_orphans(home: Path) -> list[int]:
    """End the temporary Prefect servers of `home` that a killed run left behind. Returns their process ids."""
    orphans = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            variables = process.environ()
            temporary = (
                variables.get("PREFECT__SERVER_EPHEMERAL") == "1" and variables.get("PREFECT_HOME") == f"{home}/prefect"
            )
            if temporary and variables.get(STARTER, str(process.ppid())) != str(process.ppid()):
                process.terminate()
                orphans.append(process)
    psutil.wait_procs(orphans, timeout=END_SECONDS)
    return [process.pid for process in orphans]


def serve(home: Path, mlflow_port: int = MLFLOW_PORT, prefect_port: int = PREFECT_PORT) -> None:
    """Run both servers until Ctrl-C or SIGTERM, and print their addresses. Returns at once if both run already."""
    running = {**running_servers(home), **given_servers(home)}
    if len(running) == 2:
        print("Both servers are running already:")
        print(addresses(running))
        return
    with servers_end_with_us(), serving(home, mlflow_port, prefect_port) as both:
        print(f"\n{addresses(both)}\n\nCtrl-C ends what was started here.", flush=True)
        ours = [server for server in both.values() if not server.given]
        while all(server.process() for server in ours):
            time.sleep(0.5)
        dead_server = next(server for server in ours if not server.process())
        raise UserError(f"the {dead_server.name} server ended by itself; its last words are in {dead_server.log}")
    print("Ended.")


def addresses(servers: Mapping[str, Server]) -> str:
    """Format the servers' purposes and addresses, one line each."""
    purposes = {"mlflow": "MLflow (runs, models)", "prefect": "Prefect (schedules)"}
    return "\n".join(f"  {purposes[name]:<22} {server.address}" for name, server in sorted(servers.items()))


@contextlib.contextmanager
def servers_end_with_us() -> Iterator[None]:
    """End the block without an error at Ctrl-C or SIGTERM; later signals are ignored."""

    def interrupt(number: int, frame: FrameType | None) -> None:
        for other_number in handlers:
            signal.signal(other_number, signal.SIG_IGN)
        raise KeyboardInterrupt

    handlers = {number: signal.signal(number, interrupt) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        with contextlib.suppress(KeyboardInterrupt):
            yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)


def _command(name: str, port: int, home: Path) -> list[str]:
    address_options = ["--host", HOST, "--port", str(port)]
    if name == "prefect":
        return [sys.executable, "-m", "prefect", "server", "start", *address_options]
    artifacts = ["--default-artifact-root", str(artifact_folder(home))]
    return [sys.executable, "-m", "mlflow", "server", *address_options, *artifacts, "--workers", "1"]


def _launch(name: str, port: int, home: Path) -> Server:
    inherited = {key: value for key, value in os.environ.items() if key not in FOREIGN}
    environment = {**prefect_folders(home), "PREFECT_SERVER_LOGGING_LEVEL": "WARNING", **LASTING_LEASES}
    if not {"PREFECT_UI_API_URL", "PREFECT_SERVER_UI_API_URL"} & set(inherited):
        # Otherwise the page requests port 4200, whatever the server's port, and stays blank.
        environment["PREFECT_SERVER_UI_API_URL"] = f"http://{HOST}:{port}/api"
    # Not on the command line, which every user can read: it may contain a password. Not used if a server is named.
    inherited["MLFLOW_BACKEND_STORE_URI"] = configured_address() or tracking_database(home)
    log = home / "logs" / f"{name}-server.log"
    return launch(name, _command(name, port, home), port, log, {**environment, **inherited}, cwd=home)


def check_given(server: Server) -> None:
    """Check that a server that the environment names answers.

    Raises:
        UserError: it does not answer; the message names the variable.
    """
    variable = {"mlflow": "MLFLOW_TRACKING_URI", "prefect": "PREFECT_API_URL"}[server.name]
    local = urlparse(server.address).hostname in (HOST, "localhost", "::1")
    opener = DIRECT if local else urllib.request.build_opener()
    try:
        opener.open(server.address, timeout=20).close()
    except urllib.error.HTTPError:
        return  # it answers; permissions are not checked here
    except NO_ANSWER as error:
        reason = " ".join(str(error).split()) or type(error).__name__
        raise UserError(
            f"{variable} names {server.address}, which does not answer ({reason}); start it, or unset {variable}"
        ) from None

"""Start and stop of the services of a folder: running ones are kept, dead ones started again, none runs twice.

Each service is recorded in the folder with the start time of its process, and only such processes are ever ended.
"""

from __future__ import annotations

import fcntl
import importlib.util
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from flows.runtime.environment import prefect_folders
from flows.servers.server_process import FOREIGN, LASTING_LEASES, START_SECONDS, end, launch, wait_until_healthy
from flows.servers.server_record import HOST, Server, record, recorded, running_servers
from flows.services import object_store, postgres
from flows.services.place import BUCKET, NAMES, ServiceFolder
from models.base.errors import UserError
from tasks.state import storage
from tasks.tracking.schema import Schema

DRIVERS = {"psycopg2": "psycopg2-binary", "asyncpg": "asyncpg"}
"""Module with which MLflow or Prefect connects to PostgreSQL -> its package."""

HUNG_SECONDS = 20.0
"""Time limit for an answer of a running server, seconds; a slower one counts as hung."""


def start(place: ServiceFolder, say: Callable[[str], None] = print) -> dict[str, Server]:
    """Start the services that do not run, and wait until all answer. Returns all by name.

    The remains of a killed server are ended first; if the database does not run, its clients are ended too.

    Raises:
        UserError: something is not installed, the tables are of another version of MLflow, or a server ended or did not
            answer; all services that were started are ended again.
    """
    _require_drivers()
    object_store.program()
    place.folder.mkdir(parents=True, exist_ok=True)
    with _hold_lock(place):
        running = _answering_servers(place, say)
        if "database" not in running:
            running = {name: server for name, server in running.items() if name == "store"}
        _end_in_order({name: server for name, server in recorded(place.folder).items() if name not in running}, place)
        place.make_secrets()
        for name in place.choose_ports(set(running)):
            say(f"The port of {name} is used by another program now; it gets another one.")
        started: dict[str, Server] = {}
        try:
            for names in (("database", "store"), ("mlflow", "prefect")):  # the second pair needs the first
                if "mlflow" in names and "mlflow" not in running:
                    _require_current(place)
                for name in [name for name in names if name not in running]:
                    say(f"Starting {name} on port {place.ports()[name]} ...")
                    started[name] = _launch(name, place)
                    record(place.folder, running | started)
                for name in names:
                    if name in started:
                        _wait(name, started[name], place)
        except BaseException:
            _end_in_order(started, place)
            raise
        return running | started


def stop(place: ServiceFolder) -> list[str]:
    """End the recorded services that are alive, and only those. Returns their names."""
    if not place.folder.is_dir():
        return []
    with _hold_lock(place):
        alive = {name: server for name, server in recorded(place.folder).items() if server.process()}
        _end_in_order(alive, place)
        return list(alive)


@contextmanager
def database(place: ServiceFolder) -> Iterator[None]:
    """Ensure that the database runs inside the block; if it does not run yet, it is started, and ended afterwards.

    Raises:
        UserError: PostgreSQL is not installed, or did not start.
    """
    place.folder.mkdir(parents=True, exist_ok=True)
    with _hold_lock(place):
        running = running_servers(place.folder)
        if "database" in running:
            yield
            return
        place.make_secrets()
        place.choose_ports(set(running))
        server = _launch("database", place)
        record(place.folder, running | {"database": server})
        try:
            _wait("database", server, place)
            yield
        finally:
            _end_in_order({"database": server}, place)


def state(place: ServiceFolder) -> dict[str, Server | None]:
    """Return the server of each service by name; None if it does not run."""
    running = running_servers(place.folder)
    return {name: running.get(name) for name in NAMES}


def environment(place: ServiceFolder) -> dict[str, str]:
    """Return the environment variables of a client.

    Raises:
        UserError: not all services run.
    """
    missing = [name for name, server in state(place).items() if server is None]
    if missing:
        raise UserError(f"{place.folder}: {', '.join(missing)} not running; `rewardflow services start` starts them")
    return place.environment()


def _launch(name: str, place: ServiceFolder) -> Server:
    commands: Mapping[str, Callable[[], list[str]]] = {
        "database": lambda: postgres.command(place),
        "store": lambda: object_store.command(objects(place), place.ports()["store"]),
        "mlflow": lambda: _mlflow_command(place),
        "prefect": lambda: [sys.executable, "-m", "prefect", "server", "start", *_address_options("prefect", place)],
    }
    if name == "database":
        postgres.prepare(place)
        postgres.wait_for_left_ones(place)
    if name == "store":
        objects(place).mkdir(mode=0o700, exist_ok=True)
    return launch(
        name,
        commands[name](),
        place.ports()[name],
        place.folder / "logs" / f"{name}.log",
        environment_of(name, place),
        cwd=Path("/") if name == "database" else place.folder,
        identity=postgres.identity_of_server() if name == "database" else None,
    )


def _mlflow_command(place: ServiceFolder) -> list[str]:
    store_options = ["--backend-store-uri", place.database_uri("psycopg2", "mlflow")]
    artifact_options = ["--serve-artifacts", "--artifacts-destination", f"{BUCKET}/mlflow"]
    return [
        sys.executable,
        "-m",
        "mlflow",
        "server",
        *_address_options("mlflow", place),
        *store_options,
        *artifact_options,
        "--workers",
        "2",
    ]


def _address_options(name: str, place: ServiceFolder) -> list[str]:
    return ["--host", HOST, "--port", str(place.ports()[name])]


def environment_of(name: str, place: ServiceFolder) -> dict[str, str]:
    """Return a service's whole environment: the current one without client settings, and what the service needs."""
    prefixes = ("AWS_", "PG", "PREFECT_API_", "PREFECT_SERVER_DATABASE", "MLFLOW_BACKEND", "RCLONE_")
    inherited = {key: value for key, value in os.environ.items() if key not in FOREIGN and not key.startswith(prefixes)}
    if name == "store":
        return inherited | object_store.environment(place.keys())
    if name == "mlflow":
        return inherited | place.storage() | {"PGPASSFILE": str(place.password_file)}
    if name == "prefect":
        inherited.pop("PREFECT_HOME", None)  # a client's setting
        return {
            **inherited,
            **prefect_folders(place.folder, chosen=""),
            **LASTING_LEASES,
            "PREFECT_SERVER_LOGGING_LEVEL": "WARNING",
            "PREFECT_SERVER_UI_API_URL": f"{place.address('prefect')}/api",
            "PREFECT_SERVER_DATABASE_CONNECTION_URL": place.database_uri("asyncpg", "prefect"),
            "PGPASSFILE": str(place.password_file),
        }
    return inherited


def _answering_servers(place: ServiceFolder, say: Callable[[str], None]) -> dict[str, Server]:
    """Return the services that run and answer."""
    answering = {}
    for name, server in running_servers(place.folder).items():
        try:
            _wait(name, server, place, HUNG_SECONDS)
        except UserError as error:
            say(f"{error}; starting it again")
        else:
            answering[name] = server
    return answering


def _wait(name: str, server: Server, place: ServiceFolder, seconds: float = START_SECONDS) -> None:
    """Wait until a service answers as a client would ask it; the bucket is created if it is missing."""
    if name == "database":
        wait_until_healthy(server, lambda: postgres.answers(place), seconds)
    elif name == "store":
        wait_until_healthy(server, lambda: name in running_servers(place.folder), seconds)
        endpoint, keys = place.address("store"), place.keys()
        storage.make_bucket(BUCKET, endpoint, keys)
        storage.health(BUCKET, endpoint, keys)
    else:
        wait_until_healthy(server, seconds=seconds)


def _end_in_order(servers: Mapping[str, Server], place: ServiceFolder) -> None:
    """End the services that use others before those that they use."""
    for names in (("mlflow", "prefect"), ("store", "database")):
        end({name: servers[name] for name in names if name in servers}, place.folder)


def objects(place: ServiceFolder) -> Path:
    """Return the folder of the S3 server: a bucket is a folder, an object a file."""
    return place.folder / "objects"


def _require_current(place: ServiceFolder) -> None:
    """Raise UserError if the tables are of another MLflow version: its server would migrate them, or fail at length."""
    revision = postgres.revision(place, "mlflow")
    if revision:
        Schema.of(f"database mlflow of {place.folder}", revision, "rewardflow services upgrade").require_current()


def _require_drivers() -> None:
    missing = [package for module, package in DRIVERS.items() if importlib.util.find_spec(module) is None]
    if missing:
        raise UserError(f"{' and '.join(missing)} not installed, needed for PostgreSQL: make install")


@contextmanager
def _hold_lock(place: ServiceFolder) -> Iterator[None]:
    """Hold the lock of the folder: wait for another process that starts or ends services here."""
    with (place.folder / "lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield

"""Start and end the services of a folder together: what runs stays, what died is started again, nothing runs twice.

Each is recorded in the folder with the start time of its process, and only such a process is ever ended.
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
from flows.services.place import BUCKET, NAMES, Place
from models.errors import UserError
from tasks.state import storage
from tasks.tracking.schema import Schema

DRIVERS = {"psycopg2": "psycopg2-binary", "asyncpg": "asyncpg"}
"""Modules that MLflow and Prefect speak to PostgreSQL with, and the packages that have them."""

HUNG_SECONDS = 20.0
"""How long a server that runs may take to answer before it is taken to hang."""


def start(place: Place, say: Callable[[str], None] = print) -> dict[str, Server]:
    """Start what does not run, and wait until all answer. Returns all by name.

    What a killed server left is ended first, and with the database also what was connected to it.

    Raises:
        UserError: something is not installed, the tables are another MLflow's, or a server ended or stayed silent; what
            was started is ended again.
    """
    _require_drivers()
    object_store.program()
    place.folder.mkdir(parents=True, exist_ok=True)
    with _alone(place):
        running = _answering(place, say)
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


def stop(place: Place) -> list[str]:
    """End the recorded services that are alive, and only those. Returns their names."""
    if not place.folder.is_dir():
        return []
    with _alone(place):
        alive = {name: server for name, server in recorded(place.folder).items() if server.process()}
        _end_in_order(alive, place)
        return list(alive)


@contextmanager
def database(place: Place) -> Iterator[None]:
    """The database alone answers inside: where it does not run it is made and started, and ended afterwards.

    Raises:
        UserError: PostgreSQL is not installed, or did not start.
    """
    place.folder.mkdir(parents=True, exist_ok=True)
    with _alone(place):
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


def state(place: Place) -> dict[str, Server | None]:
    """Each service where it runs, by name."""
    running = running_servers(place.folder)
    return {name: running.get(name) for name in NAMES}


def environment(place: Place) -> dict[str, str]:
    """What a client has in its environment.

    Raises:
        UserError: not all of them run.
    """
    missing = [name for name, server in state(place).items() if server is None]
    if missing:
        raise UserError(f"{place.folder}: {', '.join(missing)} not running; `rewardflow services start` starts them")
    return place.environment()


def _launch(name: str, place: Place) -> Server:
    commands: Mapping[str, Callable[[], list[str]]] = {
        "database": lambda: postgres.command(place),
        "store": lambda: object_store.command(objects(place), place.ports()["store"]),
        "mlflow": lambda: _mlflow(place),
        "prefect": lambda: [sys.executable, "-m", "prefect", "server", "start", *_listening("prefect", place)],
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


def _mlflow(place: Place) -> list[str]:
    kept = ["--backend-store-uri", place.database_uri("psycopg2", "mlflow")]
    served = ["--serve-artifacts", "--artifacts-destination", f"{BUCKET}/mlflow"]
    return [sys.executable, "-m", "mlflow", "server", *_listening("mlflow", place), *kept, *served, "--workers", "2"]


def _listening(name: str, place: Place) -> list[str]:
    return ["--host", HOST, "--port", str(place.ports()[name])]


def environment_of(name: str, place: Place) -> dict[str, str]:
    """A service's whole environment: ours without what a client has, and what this one needs."""
    prefixes = ("AWS_", "PG", "PREFECT_API_", "PREFECT_SERVER_DATABASE", "MLFLOW_BACKEND", "RCLONE_")
    inherited = {key: value for key, value in os.environ.items() if key not in FOREIGN and not key.startswith(prefixes)}
    if name == "store":
        return inherited | object_store.environment(place.keys())
    if name == "mlflow":
        return inherited | place.storage() | {"PGPASSFILE": str(place.password_file)}
    if name == "prefect":
        inherited.pop("PREFECT_HOME", None)  # of a client
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


def _answering(place: Place, say: Callable[[str], None]) -> dict[str, Server]:
    """The services that run and do what is asked of them."""
    answering = {}
    for name, server in running_servers(place.folder).items():
        try:
            _wait(name, server, place, HUNG_SECONDS)
        except UserError as error:
            say(f"{error}; starting it again")
        else:
            answering[name] = server
    return answering


def _wait(name: str, server: Server, place: Place, seconds: float = START_SECONDS) -> None:
    """Wait until a service answers, as a client would ask it; the bucket is made where it is missing."""
    if name == "database":
        wait_until_healthy(server, lambda: postgres.answers(place), seconds)
    elif name == "store":
        wait_until_healthy(server, lambda: name in running_servers(place.folder), seconds)
        endpoint, keys = place.address("store"), place.keys()
        storage.make_bucket(BUCKET, endpoint, keys)
        storage.health(BUCKET, endpoint, keys)
    else:
        wait_until_healthy(server, seconds=seconds)


def _end_in_order(servers: Mapping[str, Server], place: Place) -> None:
    """End those that ask others before those that are asked."""
    for names in (("mlflow", "prefect"), ("store", "database")):
        end({name: servers[name] for name in names if name in servers}, place.folder)


def objects(place: Place) -> Path:
    """Folder of the S3 server: a bucket is a folder, an object a file."""
    return place.folder / "objects"


def _require_current(place: Place) -> None:
    """Raise UserError where the tables are another MLflow's: its server would migrate them, or refuse at length."""
    there = postgres.revision(place, "mlflow")
    if there:
        Schema.of(f"database mlflow of {place.folder}", there, "rewardflow services upgrade").require_current()


def _require_drivers() -> None:
    missing = [package for module, package in DRIVERS.items() if importlib.util.find_spec(module) is None]
    if missing:
        raise UserError(f"{' and '.join(missing)} not installed, needed for PostgreSQL: make install")


@contextmanager
def _alone(place: Place) -> Iterator[None]:
    """Wait for another process that starts or ends services here."""
    with (place.folder / "lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield

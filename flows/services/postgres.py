"""PostgreSQL from Debian's packages: its programs, its user, its databases, its command line.

PostgreSQL refuses to run as root; if we are root, its processes run as the user `postgres`, which the packages create.
It listens on 127.0.0.1 only, has no socket in the file system, and accepts only the generated password.
"""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

import psutil

from flows.servers.server_record import HOST
from flows.services.place import USER, ServiceFolder
from models.base.atomic_write import replace_folder
from models.base.errors import UserError

DATABASES = ("mlflow", "prefect")
INSTALLED = Path("/usr/lib/postgresql")
"""Folder of PostgreSQL in Debian's packages, with one folder per version."""
UNPRIVILEGED = ("postgres", "nobody")
LEFT_SECONDS = 30.0
"""Time limit for the processes of a killed server to notice and end, seconds."""


def prepare(place: ServiceFolder) -> None:
    """Create the databases if they do not exist, completely or not at all.

    Raises:
        UserError: PostgreSQL is not installed, or cannot run here; one line gives the reason.
    """
    program("postgres")
    identity = identity_of_server()
    place.folder.mkdir(parents=True, exist_ok=True)
    _require_entry(place.folder, identity)
    data = folder(place)
    if (data / "PG_VERSION").is_file():
        _require_version(data)
        return
    with replace_folder(data) as partial_folder:
        partial_folder.chmod(0o700)
        if identity:
            os.chown(partial_folder, identity["user"], identity["group"])
        auth = ["--username=postgres", "--auth-local=peer", "--auth-host=scram-sha-256"]
        _run(
            [program("initdb"), "-D", partial_folder, *auth, "--encoding=UTF8", "--locale=C", "--no-instructions"],
            "",
            identity,
        )
        # One process and no network: the password goes through a pipe, and no superuser has one.
        single_user_options = ["-c", "exit_on_error=on", "-c", "log_min_error_statement=panic", "template1"]
        statements = [f"CREATE ROLE {USER} LOGIN PASSWORD '{place.password()}'"]
        statements += [f"CREATE DATABASE {name} OWNER {USER}" for name in DATABASES]
        _run(
            [program("postgres"), "--single", "-D", partial_folder, *single_user_options],
            "".join(f"{s};\n" for s in statements),
            identity,
        )


def command(place: ServiceFolder) -> list[str]:
    """Return the server's command line."""
    settings = {
        "listen_addresses": HOST,
        "port": str(place.ports()["database"]),
        "unix_socket_directories": "",
        "max_connections": "200",
    }
    options = [part for key, value in settings.items() for part in ("-c", f"{key}={value}")]
    return [program("postgres"), "-D", str(folder(place)), *options]


def answers(place: ServiceFolder) -> bool:
    """Whether the server accepts connections."""
    arguments = [program("pg_isready"), "--quiet", "--host", HOST, "--port", str(place.ports()["database"])]
    return subprocess.run(arguments, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode == 0


def dump(place: ServiceFolder, name: str, file: Path) -> None:
    """Write a database as of one moment to `file`, in PostgreSQL's own format; others can use it during the dump.

    Raises:
        UserError: the server does not run, or refuses; one line gives the reason.
    """
    _run_client(place, "pg_dump", "--format=custom", "--no-owner", f"--file={file}", f"--dbname={name}")


def restore(place: ServiceFolder, name: str, file: Path) -> None:
    """Restore the output of `dump` into an empty database, completely or not at all.

    Raises:
        UserError: the server does not run, or refuses; one line gives the reason.
    """
    _run_client(place, "pg_restore", "--single-transaction", "--no-owner", f"--dbname={name}", str(file))


def revision(place: ServiceFolder, name: str) -> str:
    """Return Alembic's revision of a database's tables; "" if it has none yet.

    Raises:
        UserError: the server does not run, or refuses; one line gives the reason.
    """
    options = ("--tuples-only", "--no-align", "--no-psqlrc", f"--dbname={name}")
    if not _run_client(place, "psql", *options, "--command=SELECT to_regclass('alembic_version')").strip():
        return ""
    return _run_client(place, "psql", *options, "--command=SELECT version_num FROM alembic_version").strip()


def _run_client(place: ServiceFolder, name: str, *options: str) -> str:
    arguments = [program(name), "--host", HOST, "--port", str(place.ports()["database"]), "--username", USER, *options]
    environment = {**os.environ, "PGPASSFILE": str(place.password_file)}
    result = subprocess.run(arguments, capture_output=True, text=True, env=environment)
    if result.returncode:
        raise UserError(f"{name}: {(result.stderr.strip().splitlines() or ['no reason given'])[-1]}")
    return result.stdout


def wait_for_left_ones(place: ServiceFolder) -> None:
    """Wait until the worker processes of a killed server have ended, before which a new server refuses to start.

    Raises:
        UserError: they do not end.
    """
    data = str(folder(place).resolve())
    workers = []
    for process in psutil.process_iter(["name"]):
        if process.info["name"] == "postgres":
            try:
                workers += [process] if process.cwd() == data else []
            except psutil.Error:
                continue
    _, alive = psutil.wait_procs(workers, timeout=LEFT_SECONDS)
    if alive:
        numbers = ", ".join(str(process.pid) for process in alive)
        raise UserError(f"{data}: processes of an earlier PostgreSQL server still run here ({numbers}); end them first")


def folder(place: ServiceFolder) -> Path:
    """Return PostgreSQL's own folder."""
    return place.folder / "database"


def identity_of_server() -> dict[str, Any]:
    """Return `user`, `group` and `extra_groups` to start PostgreSQL with; empty if it may run as the current user.

    Raises:
        UserError: the current user is root, and the machine has no user for PostgreSQL.
    """
    if os.geteuid() != 0:
        return {}
    for name in UNPRIVILEGED:
        try:
            user = pwd.getpwnam(name)
        except KeyError:
            continue
        return {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}
    raise UserError("PostgreSQL does not run as root, and the user postgres is missing; create it: adduser postgres")


@cache
def program(name: str) -> str:
    """Return the path of a program of PostgreSQL: from Debian's newest installed version, otherwise from PATH.

    Raises:
        UserError: it is not installed.
    """
    versions = sorted(INSTALLED.glob("*/bin"), key=lambda path: _number(path.parent.name))
    path = shutil.which(name, path=os.pathsep.join([*map(str, reversed(versions)), os.environ.get("PATH", "")]))
    if path is None:
        raise UserError(f"PostgreSQL is not installed (no program {name}): apt-get install postgresql")
    return path


def _number(version: str) -> float:
    try:
        return float(version)
    except ValueError:
        return 0.0


def _require_entry(folder: Path, identity: dict[str, Any]) -> None:
    result = subprocess.run(["/bin/sh", "-c", 'cd -- "$1"', "sh", folder], capture_output=True, cwd="/", **identity)
    if result.returncode:
        user = pwd.getpwuid(identity["user"]).pw_name if identity else "you"
        raise UserError(
            f"{folder}: the user {user} cannot enter it, and PostgreSQL runs as that user; "
            "choose a folder that everybody may enter with --folder"
        )


def _require_version(data: Path) -> None:
    """Raise for a folder of another major version: the server would refuse it too, with a longer message."""
    data_version = (data / "PG_VERSION").read_text().strip()
    version_line = subprocess.run([program("postgres"), "--version"], capture_output=True, text=True, check=True).stdout
    installed_version = version_line.split()[2].partition(".")[0]
    if data_version != installed_version:
        raise UserError(
            f"{data} was made by PostgreSQL {data_version} and {installed_version} is installed: "
            f"pg_upgrade, or install {data_version}"
        )


def _run(arguments: list[Any], standard_input: str, identity: dict[str, Any]) -> None:
    """Run one of the programs to its end; if it fails, its last line becomes the UserError."""
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("PG", "LC_"))}
    result = subprocess.run(
        arguments, input=standard_input, env=environment, capture_output=True, text=True, cwd="/", **identity
    )
    if result.returncode:
        lines = [line for line in result.stderr.splitlines() if "PASSWORD" not in line and line.strip()]
        raise UserError(f"{Path(arguments[0]).name} failed: {lines[-1] if lines else 'it printed nothing'}")

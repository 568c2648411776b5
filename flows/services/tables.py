"""Migration of the services' databases to the tables of the installed MLflow and Prefect."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable

from flows.services import postgres, service_set
from flows.services.place import ServiceFolder
from models.base.errors import UserError

UPGRADES = {"mlflow": ["db", "upgrade"], "prefect": ["server", "database", "upgrade", "--yes"]}
"""Service -> its own command that migrates its tables."""


def upgrade(place: ServiceFolder, say: Callable[[str], None] = print) -> None:
    """Migrate the tables of MLflow and Prefect to the installed versions. Only a backup can undo this.

    Raises:
        UserError: no services exist here, one of the two runs, or its migration failed; one line gives the reason.
    """
    if not (postgres.folder(place) / "PG_VERSION").is_file():
        raise UserError(f"{place.folder}: no services were ever started here")
    running = [name for name in UPGRADES if service_set.state(place)[name]]
    if running:
        raise UserError(f"{' and '.join(running)} running in {place.folder}: `rewardflow services stop` first")
    with service_set.database(place):
        for name, subcommand in UPGRADES.items():
            before = postgres.revision(place, name)
            address = [place.database_uri("psycopg2", name)] if name == "mlflow" else []
            command = [sys.executable, "-m", name, *subcommand, *address]
            result = subprocess.run(
                command, capture_output=True, text=True, env=service_set.environment_of(name, place), cwd=place.folder
            )
            if result.returncode:
                lines = (result.stderr or result.stdout).strip().splitlines() or ["no reason given"]
                raise UserError(f"{name}: its tables were not upgraded: {lines[-1]}")
            after = postgres.revision(place, name)
            say(f"{name}: {f'tables {before} are {after} now' if before != after else f'tables {after}, as they were'}")

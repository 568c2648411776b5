"""The command `rewardflow services status`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from flows.runtime.command_options import FolderOption, service_folder

if TYPE_CHECKING:
    pass


def status(folder: FolderOption = None) -> None:
    """Show which services run, their addresses, and how to open the databases. Exit status 1 if one does not run.

    Example: `rewardflow services status`
    """
    from flows.services import service_set
    from flows.services.place import USER

    place = service_folder(folder)
    states = service_set.state(place)
    for name, server in states.items():
        print(f"  {name:<9} {f'{server.address}  process {server.pid}' if server else 'does not run'}")
    if not all(states.values()):
        raise typer.Exit(1)
    print(f"  PGPASSFILE={place.password_file} psql -h 127.0.0.1 -p {place.ports()['database']} -U {USER} mlflow")

"""Commands for a team's services on this machine, without containers: start, stop, show their state."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from flows.runtime import collection
from flows.runtime.environment import state_folder

if TYPE_CHECKING:
    from flows.services.place import ServiceFolder

app = typer.Typer(
    no_args_is_help=True, help="PostgreSQL, an S3 server, MLflow and Prefect on this machine, without containers."
)

FolderOption = Annotated[
    Path | None,
    typer.Option("--folder", help="Folder of all they keep; `services` in the state folder, if left out."),
]


@app.command()
def start(folder: FolderOption = None) -> None:
    """Start the services that do not run, and print the shell commands that set their environment variables.

    Example: `rewardflow services start`, then `eval "$(rewardflow services env)"`
    """
    from flows.services import service_set
    from flows.services.place import shell_lines

    collection.begin()
    place = _place(folder)
    service_set.start(place)
    print(f"\n{shell_lines(place.environment())}\n")
    given = f" --folder {place.folder}" if folder else ""
    print(f'All answer. In a shell: eval "$(rewardflow services env{given})"')


@app.command()
def stop(folder: FolderOption = None) -> None:
    """Stop the services that run. All their data are kept.

    Example: `rewardflow services stop`
    """
    from flows.services import service_set

    ended = service_set.stop(_place(folder))
    print(f"ended: {', '.join(ended)}" if ended else "none was running")


@app.command()
def env(folder: FolderOption = None) -> None:
    """Print the shell commands that set the environment variables of the services.

    Example: `eval "$(rewardflow services env)"`
    """
    from flows.services import service_set
    from flows.services.place import shell_lines

    print(shell_lines(service_set.environment(_place(folder))))


@app.command()
def status(folder: FolderOption = None) -> None:
    """Show which services run, their addresses, and how to open the databases. Exit status 1 if one does not run.

    Example: `rewardflow services status`
    """
    from flows.services import service_set
    from flows.services.place import USER

    place = _place(folder)
    states = service_set.state(place)
    for name, server in states.items():
        print(f"  {name:<9} {f'{server.address}  process {server.pid}' if server else 'does not run'}")
    if not all(states.values()):
        raise typer.Exit(1)
    print(f"  PGPASSFILE={place.password_file} psql -h 127.0.0.1 -p {place.ports()['database']} -U {USER} mlflow")


@app.command()
def upgrade(folder: FolderOption = None) -> None:
    """Migrate the tables of both databases to the installed versions of MLflow and Prefect. Make a backup first.

    Example: `rewardflow services stop`, `rewardflow backup /backups/before.tar`, `rewardflow services upgrade`
    """
    from flows.services import tables

    tables.upgrade(_place(folder))


def _place(folder: Path | None) -> ServiceFolder:
    from flows.services.place import ServiceFolder

    return ServiceFolder((folder or state_folder() / "services").absolute())

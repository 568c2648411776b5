"""A team's services on this machine, without containers: start, end, say where they are."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from flows.runtime import collection
from flows.runtime.environment import state_folder

if TYPE_CHECKING:
    from flows.services.place import Place

app = typer.Typer(
    no_args_is_help=True, help="PostgreSQL, an S3 server, MLflow and Prefect on this machine, without containers."
)

FolderOption = Annotated[
    Path | None,
    typer.Option("--folder", help="Folder of all they keep; `services` in the state folder, if left out."),
]


@app.command()
def start(folder: FolderOption = None) -> None:
    """Start those that do not run, and print what a shell exports to use them.

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
    """End those that run; all that they hold stays.

    Example: `rewardflow services stop`
    """
    from flows.services import service_set

    ended = service_set.stop(_place(folder))
    print(f"ended: {', '.join(ended)}" if ended else "none was running")


@app.command()
def env(folder: FolderOption = None) -> None:
    """Print what a shell exports to use them.

    Example: `eval "$(rewardflow services env)"`
    """
    from flows.services import service_set
    from flows.services.place import shell_lines

    print(shell_lines(service_set.environment(_place(folder))))


@app.command()
def status(folder: FolderOption = None) -> None:
    """Say which run, where, and how to look into the databases. Exit status 1 where one does not run.

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
    """Make the tables of both databases those of the MLflow and Prefect that are installed. Back up before.

    Example: `rewardflow services stop`, `rewardflow backup /backups/before.tar`, `rewardflow services upgrade`
    """
    from flows.services import tables

    tables.upgrade(_place(folder))


def _place(folder: Path | None) -> Place:
    from flows.services.place import Place

    return Place((folder or state_folder() / "services").absolute())

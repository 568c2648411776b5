"""The command `rewardflow restore`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from flows.runtime.environment import state_folder
from models.base.disk import readable_size

if TYPE_CHECKING:
    pass

PANEL = "Operations"


def restore(
    file: Annotated[Path, typer.Argument(help="File that `rewardflow backup` wrote.")],
    sha256: Annotated[
        str, typer.Option("--sha256", metavar="HEX", help="Expected SHA-256 of the file, as `backup` printed it.")
    ] = "",
) -> None:
    """Restore a backup into the state folder (REWARDFLOW_HOME), which must be empty, and check every byte.

    Example: `REWARDFLOW_HOME=/srv/rewardflow rewardflow restore /backups/2026-11-23.tar`
    """
    from flows.services import dump
    from tasks.state.backup import other_packages, require_hash
    from tasks.tracking import schema, store

    home = state_folder()
    if sha256:
        require_hash(file, sha256)
    contents = dump.restore(file.absolute(), home)
    size = readable_size(contents.bytes)
    print(f"{home}: {len(contents.files)} files, {size}, as of {contents.made}; all hashes are right")
    for line in other_packages(contents):
        print(line)
    if contents.holds(dump.DATABASES):
        print("Services: `rewardflow services start` starts them on what was restored, with new passwords and keys.")
    elif store.exists(home):
        tables = schema.schema_of(home)
        if tables is not None and not tables.current:
            print(f"{tables.versions}; before anything is run here: {tables.mend}")
            return
        store.open_for_reading(home)
        print("`rewardflow models` shows what is in the registry.")

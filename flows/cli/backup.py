"""The command `rewardflow backup`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from flows.runtime.environment import state_folder
from models.base.disk import readable_size

if TYPE_CHECKING:
    pass

PANEL = "Operations"


def backup(
    file: Annotated[Path, typer.Argument(help="Tar file to write. Other users cannot read it.")],
) -> None:
    """Write the state folder, and its services if there are any, to one file. Runs may continue during the backup.

    Example: `rewardflow backup /backups/$(date +%F).tar`
    """
    import tempfile

    from flows.services import dump
    from models.base.file_hash import sha256_of
    from tasks.host.plain_address import shown
    from tasks.state.backup import write_backup
    from tasks.tracking import store

    home = state_folder()
    with tempfile.TemporaryDirectory(prefix="rewardflow-dump-") as dumps:
        parts = dump.write(home, Path(dumps))
        contents = write_backup(file.absolute(), home, parts)
    what = "state folder and services" if parts else "state folder"
    print(f"{file}: {what}, {len(contents.files)} files, {readable_size(contents.bytes)}")
    print(
        f"SHA-256 {sha256_of(file)}; if you note it elsewhere, `rewardflow restore --sha256` can check whether the "
        "file was changed"
    )
    if store.configured_address() and not parts:
        kept_by = shown(store.configured_address())
        print(f"runs and models are kept by {kept_by}, and are not in it: back up its database and its bucket")
    print("Not in it: code and recipes (git), and data versions where the remote of DVC is not in this folder.")

"""Commands for the state folder: delete outputs that are not needed any more, back up, restore."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from flows.runtime.environment import state_folder, writable_state_folder

if TYPE_CHECKING:
    from tasks.state.prune import StateItem


def gc(
    keep_days: Annotated[
        float, typer.Option("--keep-days", min=0, help="What was made or used within so many days stays.")
    ] = 30.0,
    refused: Annotated[
        bool,
        typer.Option(
            "--refused",
            help="Let go of old outputs behind versions that have no alias and never were champion, too; the versions "
            "stay in the registry.",
        ),
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Delete it; without this, only list it.")] = False,
) -> None:
    """Delete step outputs and logged models that no alias, no lineage of a version and no retention rule needs.

    Everything that a present or former champion was made from is always kept, and so are all runs and all registered
    versions.

    Example: `rewardflow gc --keep-days 14`, then the same with `--yes`
    """
    from tasks.state import prune
    from tasks.tracking import store

    home = writable_state_folder() if yes else state_folder()
    store.open_for_reading(home)
    if not yes:
        print(prune_lines(prune.plan(home, keep_days, refused)))
        print("nothing was deleted; the same with --yes deletes it")
        return
    from flows.runtime.turn import only_run

    with only_run(home):
        held = prune.plan(home, keep_days, refused)
        print(prune_lines(held))
        print(f"freed {_size(prune.remove(home, held))}")


def backup(
    file: Annotated[Path, typer.Argument(help="The file that is made, a tar file; kept from other users.")],
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
    print(f"{file}: {what}, {len(contents.files)} files, {_size(contents.bytes)}")
    print(
        f"SHA-256 {sha256_of(file)}; if you note it elsewhere, `rewardflow restore --sha256` can check whether the "
        "file was changed"
    )
    if store.wished() and not parts:
        kept_by = shown(store.wished())
        print(f"runs and models are kept by {kept_by}, and are not in it: back up its database and its bucket")
    print("Not in it: code and recipes (git), and data versions where the remote of DVC is not in this folder.")


def restore(
    file: Annotated[Path, typer.Argument(help="A file that `rewardflow backup` made.")],
    sha256: Annotated[
        str, typer.Option("--sha256", metavar="HEX", help="Of the file, as `backup` printed it; another is refused.")
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
    print(f"{home}: {len(contents.files)} files, {_size(contents.bytes)}, as of {contents.made}; all hashes are right")
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


def prune_lines(held: Sequence[StateItem]) -> str:
    """List the entries to delete, one per line, and those to keep, one line per reason, with their sizes."""
    going = [entry for entry in held if entry.goes]
    lines = [
        f"goes   {_size(entry.bytes):>9}  last used {entry.used:%Y-%m-%d}  {entry.what}: {entry.why}"
        for entry in sorted(going, key=lambda entry: -entry.bytes)
    ]
    staying: dict[str, list[int]] = defaultdict(list)
    for entry in held:
        if not entry.goes:
            staying[entry.why].append(entry.bytes)
    lines += [
        f"stays  {_size(sum(sizes)):>9}  {len(sizes)} for: {why}"
        for why, sizes in sorted(staying.items(), key=lambda item: -sum(item[1]))
    ]
    kept = sum(entry.bytes for entry in held if not entry.goes)
    gone = sum(entry.bytes for entry in going)
    total = f"{_size(gone)} in {len(going)} go, {_size(kept)} in {len(held) - len(going)} stay"
    return "\n".join([*lines, total])


def _size(number: int) -> str:
    for unit in ("B", "KiB", "MiB"):
        if number < 1024:
            return f"{number:.0f} {unit}" if unit == "B" else f"{number:.1f} {unit}"
        number /= 1024  # type: ignore[assignment]
    return f"{number:.1f} GiB"


COMMANDS = (gc, backup, restore)

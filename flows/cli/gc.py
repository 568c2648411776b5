"""The command `rewardflow gc`."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from flows.runtime.environment import state_folder, writable_state_folder
from models.base.disk import readable_size

if TYPE_CHECKING:
    from tasks.state.prune import StateItem

PANEL = "Operations"


def gc(
    keep_days: Annotated[
        float, typer.Option("--keep-days", min=0, help="Keep outputs that were made or used within this many days.")
    ] = 30.0,
    refused: Annotated[
        bool,
        typer.Option(
            "--refused",
            help="Also delete old outputs of versions that have no alias and were never champion. The versions stay in "
            "the registry.",
        ),
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Delete. Without this option, outputs are only listed.")] = False,
) -> None:
    """Delete step outputs and logged models that no alias, no lineage of a version and no retention rule needs.

    The inputs and outputs of every present or former champion are always kept, and so are all runs and all registered
    versions.

    Example: `rewardflow gc --keep-days 14`, then `rewardflow gc --keep-days 14 --yes`
    """
    from tasks.state import prune
    from tasks.tracking import store

    home = writable_state_folder() if yes else state_folder()
    store.open_for_reading(home)
    if not yes:
        print(prune_lines(prune.plan(home, keep_days, refused)))
        print("nothing was deleted; add --yes to delete these outputs")
        return
    from flows.runtime.turn import only_run

    with only_run(home):
        held = prune.plan(home, keep_days, refused)
        print(prune_lines(held))
        print(f"freed {readable_size(prune.remove(home, held))}")


def prune_lines(held: Sequence[StateItem]) -> str:
    """List the entries to delete, one per line, and those to keep, one line per reason, with their sizes."""
    going = [entry for entry in held if entry.removed]
    lines = [
        f"delete {readable_size(entry.bytes):>9}  last used {entry.used:%Y-%m-%d}  {entry.what}: {entry.why}"
        for entry in sorted(going, key=lambda entry: -entry.bytes)
    ]
    staying: dict[str, list[int]] = defaultdict(list)
    for entry in held:
        if not entry.removed:
            staying[entry.why].append(entry.bytes)
    lines += [
        f"keep   {readable_size(sum(sizes)):>9}  {len(sizes)} for: {why}"
        for why, sizes in sorted(staying.items(), key=lambda item: -sum(item[1]))
    ]
    kept = sum(entry.bytes for entry in held if not entry.removed)
    gone = sum(entry.bytes for entry in going)
    total = (
        f"{readable_size(gone)} in {len(going)} to delete, {readable_size(kept)} in {len(held) - len(going)} to keep"
    )
    return "\n".join([*lines, total])

"""What the state folder holds, and how it is emptied of what nothing needs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from flows.environment import state_folder, writable_state_folder

if TYPE_CHECKING:
    from tasks.prune import Held


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
    yes: Annotated[bool, typer.Option("--yes", help="Delete it; without this, only say what would go.")] = False,
) -> None:
    """Delete outputs of steps and logged models that no alias, no lineage of a version and no retention rule needs.

    What a champion came from, of today or before, always stays, and so do all runs and all registered versions.

    Example: `rewardflow gc --keep-days 14`, then the same with `--yes`
    """
    from tasks import prune
    from tasks.tracking import store

    home = writable_state_folder() if yes else state_folder()
    store.open_for_reading(home)
    if not yes:
        print(prune_lines(prune.plan(home, keep_days, refused)))
        print("nothing was deleted; the same with --yes deletes it")
        return
    from flows.turn import only_run

    with only_run(home):
        held = prune.plan(home, keep_days, refused)
        print(prune_lines(held))
        print(f"freed {_size(prune.remove(home, held))}")


def prune_lines(held: Sequence[Held]) -> str:
    """What goes, one line each, and what stays, one line a reason, with the sizes."""
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


COMMANDS = (gc,)

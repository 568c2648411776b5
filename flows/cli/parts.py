"""The command `rewardflow parts`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

PANEL = "Methods"


def _complete_slots(incomplete: str) -> list[str]:
    """Return the slots that begin with `incomplete`, for the shell."""
    from models.method.registry import NESTED_SLOTS, SLOTS

    return [slot for slot in SLOTS | NESTED_SLOTS if slot.startswith(incomplete)]


def parts(
    wanted: Annotated[
        str,
        typer.Argument(
            metavar="[SLOT|NAME]",
            help="Slot to list, or part to describe in full. Default: all.",
            autocompletion=_complete_slots,
        ),
    ] = "",
    write: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Write a Markdown page for each slot, as in docs/parts.")
    ] = None,
) -> None:
    """List the parts of each slot of a recipe; for one part, show its settings, bounds, defaults, traits and source.

    Parts of installed packages (entry points `rewardflow.parts`) are listed with package and version. Exit status 1 if
    one of those to list cannot be used; the reason is printed after the list.

    Example: `rewardflow parts grpo`
    """
    from models.base.atomic_write import write_file
    from models.base.errors import UserError
    from models.method.plugins import faults
    from models.method.registry import NESTED_SLOTS, SLOTS
    from models.recipes.catalogue import as_pages, as_text, entries

    if write is not None:
        for name, page in as_pages().items():
            write_file(write / name, page)
        return
    every = SLOTS | NESTED_SLOTS
    listed = entries(wanted)
    print(as_text(listed, wanted != "" and wanted not in every))
    if unusable := faults(tuple(every), wanted):
        raise UserError(*unusable)

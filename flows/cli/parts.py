"""The command `rewardflow parts`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

PANEL = "Methods"


def parts(
    wanted: Annotated[
        str, typer.Argument(metavar="[SLOT|NAME]", help="Slot to list, or part to describe in full. Default: all.")
    ] = "",
    write: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Write a Markdown page for each slot, as in docs/parts.")
    ] = None,
) -> None:
    """List the parts of each slot of a recipe; for one part, show its settings, bounds, defaults, traits and source.

    Example: `rewardflow parts grpo`
    """
    from models.base.atomic_write import write_file
    from models.method.registry import NESTED_SLOTS, SLOTS
    from models.recipes.catalogue import as_pages, as_text, entries

    if write is not None:
        for name, page in as_pages().items():
            write_file(write / name, page)
        return
    print(as_text(entries(wanted), wanted != "" and wanted not in SLOTS | NESTED_SLOTS))

"""Commands that list methods, parts and commands."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def methods(
    markdown: Annotated[bool, typer.Option("--markdown", help="As the page docs/methods.md.")] = False,
    family: Annotated[str, typer.Option(help="Those of one family alone, such as agents; all, if left out.")] = "",
) -> None:
    """List the recipes with the slots that they use, and the evaluation strategies, with their papers.

    Example: `rewardflow methods --family agents`
    """
    from models.recipes.methods import as_markdown, as_text, every_method, of_family

    listed = of_family(every_method(), family) if family else every_method()
    print(as_markdown(listed) if markdown else as_text(listed), end="" if markdown else "\n")


def parts(
    wanted: Annotated[
        str, typer.Argument(metavar="[SLOT|NAME]", help="Slot to list, or part to describe in full; all, if left out.")
    ] = "",
    write: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Write a Markdown page for each slot, as in docs/parts.")
    ] = None,
) -> None:
    """List the parts of each slot of a recipe; for one part, show its settings, bounds, defaults, traits and source.

    Example: `rewardflow parts grpo`
    """
    from models.base.atomic_write import write_file
    from models.method.registry import INSIDE, SLOTS
    from models.recipes.catalogue import as_pages, as_text, entries

    if write is not None:
        for name, page in as_pages().items():
            write_file(write / name, page)
        return
    print(as_text(entries(wanted), wanted != "" and wanted not in SLOTS | INSIDE))


def reference(context: typer.Context) -> None:
    """Print the page docs/commands.md: every command with its options, environment variables, tags of runs.

    Example: `rewardflow reference > docs/commands.md`
    """
    from flows.reference import as_markdown

    print(as_markdown(context.find_root().command), end="")


COMMANDS = (methods, parts, reference)

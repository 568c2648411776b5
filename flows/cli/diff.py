"""The command `rewardflow diff`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from flows.runtime.command_options import ModelOption, meant_policy
from flows.runtime.environment import state_folder

PANEL = "Runs"


def diff(
    before: Annotated[
        str, typer.Argument(metavar="A", help="Version, alias, NAME/VERSION, or a run's id, its beginning or its name.")
    ],
    after: Annotated[str, typer.Argument(metavar="B", help="Version or run to compare with, named in the same way.")],
    model: ModelOption = "",
    page: Annotated[Path | None, typer.Option("--page", help="Write an HTML file with every row and answer.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Show the differences between two versions or runs: code, data, recipe, packages, metrics, answers that flipped.

    Example: `rewardflow diff previous champion --page diff.html`
    """
    from flows.difference import difference_lines, write_page
    from tasks.registered.difference import as_json as whole
    from tasks.registered.difference import difference
    from tasks.tracking import recorded, store

    store.open_for_reading(state_folder())
    sides = [recorded.recorded(side, lambda: meant_policy(model)) for side in (before, after)]
    comparison = difference(sides[0], sides[1], Path.cwd())
    if page is not None:
        write_page(page, comparison)
    print(whole(comparison) if as_json else difference_lines(comparison) + (f"\n\npage: {page}" if page else ""))

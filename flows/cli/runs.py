"""The command `rewardflow runs`."""

from __future__ import annotations

from typing import Annotated

import typer

from flows.runtime.environment import state_folder

PANEL = "Runs"


def runs(
    recipe: Annotated[str, typer.Argument(help="Name of a recipe. Default: all recipes.")] = "",
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, max=10_000, help="Maximum number of runs.")] = 20,
) -> None:
    """List the newest runs of all recipes or of one.

    Example: `rewardflow runs arithmetic --limit 5`
    """
    from tasks.tracking import store

    if not store.exists(state_folder()):
        print("no runs yet; `rewardflow run RECIPE` makes the first")
        return
    from flows.runtime.outcome import run_lines
    from tasks.tracking import summaries

    store.open_for_reading(state_folder())
    print(run_lines(summaries.recent_runs(recipe, limit)))

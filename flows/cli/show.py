"""The command `rewardflow show`."""

from __future__ import annotations

from typing import Annotated

import typer

from flows.runtime.environment import state_folder

PANEL = "Runs"


def show(
    run: Annotated[str, typer.Argument(help="Run id, its beginning, its name, or `latest`.")] = "latest",
    experiment: Annotated[
        str, typer.Option("--experiment", "-e", help="Only runs of this recipe. Default: all recipes.")
    ] = "",
) -> None:
    """Show a run: its verdict, steps and data, and its address in the MLflow UI.

    Example: `rewardflow show latest`
    """
    from flows.runtime.outcome import print_run
    from tasks.tracking import store, summaries

    store.open_for_reading(state_folder())
    print_run(summaries.run_summary(experiment, run), state_folder())

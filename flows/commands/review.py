"""Look at what was trained."""

from __future__ import annotations

from typing import Annotated

import typer

from flows.commands.options import ModelOption, meant_policy
from flows.environment import state_folder


def runs(
    recipe: Annotated[str, typer.Argument(help="Name of a recipe; the runs of all, if left out.")] = "",
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, max=10_000, help="How many, newest first.")] = 20,
) -> None:
    """List the newest runs, of all recipes or of one.

    Example: `rewardflow runs arithmetic --limit 5`
    """
    from tasks.tracking import store

    if not store.exists(state_folder()):
        print("no runs yet; `rewardflow run RECIPE` makes the first")
        return
    from flows.outcome import run_lines
    from tasks.tracking import summaries

    store.open_for_reading(state_folder())
    print(run_lines(summaries.recent_runs(recipe, limit)))


def show(
    run: Annotated[str, typer.Argument(help="Run id, its beginning, its name, or `latest`.")] = "latest",
    experiment: Annotated[
        str, typer.Option("--experiment", "-e", help="Only among the runs of this recipe; of all, if left out.")
    ] = "",
) -> None:
    """Show a run: verdict, steps, data, and its address in the MLflow UI.

    Example: `rewardflow show latest`
    """
    from flows.outcome import print_run
    from tasks.tracking import store, summaries

    store.open_for_reading(state_folder())
    print_run(summaries.run_summary(experiment, run), state_folder())


def lineage(version: Annotated[int, typer.Argument(help="Version of the policy.")], model: ModelOption = "") -> None:
    """Print the chain from the raw data's hash to the alias.

    Example: `rewardflow lineage 1`
    """
    from tasks.tracking import lineage as chain
    from tasks.tracking import store

    store.open_for_reading(state_folder())
    print(chain.render(chain.lineage(meant_policy(model), version)))


COMMANDS = (runs, show, lineage)

"""Look at what was trained."""

from __future__ import annotations

from typing import Annotated

import typer

from flows.commands.options import ModelOption, meant_policy
from flows.environment import state_folder


def runs(
    experiment: Annotated[str, typer.Argument(help="MLflow experiment: the recipe's name.")] = "arithmetic",
    limit: Annotated[int, typer.Option("--limit", "-n", help="How many, newest first.")] = 20,
) -> None:
    """List the newest runs of a recipe.

    Example: `rewardflow runs arithmetic --limit 5`
    """
    from flows.outcome import run_lines
    from tasks.tracking import store, summaries

    store.configure(state_folder())
    print(run_lines(summaries.recent_runs(experiment, limit)))


def show(
    run: Annotated[str, typer.Argument(help="Run id, its beginning, its name, or `latest`.")] = "latest",
    experiment: Annotated[
        str, typer.Option("--experiment", "-e", help="MLflow experiment: the recipe's name.")
    ] = "arithmetic",
) -> None:
    """Show a run: verdict, steps, data, and its address in the MLflow UI.

    Example: `rewardflow show latest`
    """
    from flows.outcome import print_run
    from tasks.tracking import store, summaries

    store.configure(state_folder())
    print_run(summaries.run_summary(experiment, run), state_folder())


def lineage(version: Annotated[int, typer.Argument(help="Version of the policy.")], model: ModelOption = "") -> None:
    """Print the chain from the raw data's hash to the alias.

    Example: `rewardflow lineage 1`
    """
    from tasks.tracking import lineage as chain
    from tasks.tracking import store

    store.configure(state_folder())
    print(chain.render(chain.lineage(meant_policy(model), version)))


COMMANDS = (runs, show, lineage)

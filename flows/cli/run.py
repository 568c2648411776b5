"""The command `rewardflow run`."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from flows.runtime.command_options import RecipeArgument, SetOption
from flows.runtime.environment import state_folder
from tasks.runner import interrupt

PANEL = "Train"

NOTHING_LEARNED = 3
"""Exit status of a run or a comparison that finished, but in which a policy collapsed or did not change."""


def run(
    recipe: RecipeArgument,
    overrides: SetOption = None,
    refresh: Annotated[
        bool,
        typer.Option("--refresh", help="Run every step except data again; judged weights are not judged again."),
    ] = False,
    smoke: Annotated[
        bool, typer.Option("--smoke", help="Run every step in seconds, on a tiny policy, as NAME-smoke.")
    ] = False,
    resume: Annotated[
        bool,
        typer.Option(
            "--resume",
            help="Refuse if data, code or recipe changed since the run was interrupted. Without this option, a changed "
            "step starts again.",
        ),
    ] = False,
    cluster: Annotated[
        str | None,
        typer.Option("--cluster", help="Ray cluster to place engines on. Default: this machine.", metavar="ADDRESS"),
    ] = None,
    mirror: Annotated[
        list[str] | None,
        typer.Option(
            "--mirror",
            help="Copy params, tags and metrics to tensorboard, wandb or trackio as well; can be repeated. Default: "
            "the mirrors in REWARDFLOW_MIRRORS.",
            metavar="NAME",
        ),
    ] = None,
) -> None:
    """Run a recipe, from the data to the promoted model.

    Example: `rewardflow run recipes/arithmetic.yaml --set schedule.rounds=20`
    """
    from models.recipes.find import find_recipe

    find_recipe(recipe)  # reports a misspelt name before the parts are imported, which takes seconds
    from models.recipes.files import require_files
    from models.recipes.load import load_recipe
    from models.recipes.smoke import made_small

    chosen = overrides or []
    if smoke:
        chosen = made_small(recipe, chosen)
    checked = load_recipe(recipe, chosen)  # reports errors before Prefect starts, which takes seconds
    require_files(checked)
    checked.placement.check(cluster)
    from tasks.tracking.mirrors import choice

    if mirror:
        choice.choose(mirror)
    else:
        choice.require_installed()
    from flows.runtime.called_flow import prepare_flow

    ready = prepare_flow()
    from flows.runtime.outcome import closing_lines
    from flows.train import train

    ready()
    outcome: Any = train(recipe, chosen, refresh, cluster, resume)
    interrupt.raise_again()
    print(closing_lines(outcome, state_folder()))
    if outcome.collapsed:
        raise typer.Exit(NOTHING_LEARNED)

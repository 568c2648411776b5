"""The command `rewardflow compare`."""

from __future__ import annotations

from typing import Annotated

import typer

from flows.runtime.command_options import SetOption, complete_recipes
from flows.runtime.environment import state_folder
from tasks.runner import interrupt

PANEL = "Train"

NOTHING_LEARNED = 3
"""Exit status of a run or a comparison that finished, but in which a policy collapsed or did not change."""


def compare(
    recipes: Annotated[
        list[str], typer.Argument(help="Recipes. The first is the baseline.", autocompletion=complete_recipes)
    ],
    seeds: Annotated[
        int,
        typer.Option(
            "--seeds",
            help="Seeds per recipe, at least 2. With fewer than 10, the intervals are too narrow for a decision.",
        ),
    ] = 5,
    metric: Annotated[str, typer.Option("--metric", help="Held-out metric to compare.")] = "sampled_accuracy",
    budget: Annotated[
        int | None,
        typer.Option(
            "--budget",
            help="Completions per training. Default: the smallest number of any of the recipes (rounds x prompts x "
            "completions per prompt).",
        ),
    ] = None,
    target: Annotated[
        float, typer.Option("--target", help="Score that the optimality gap is measured from; 1 for a share.")
    ] = 1.0,
    overrides: SetOption = None,
    smoke: Annotated[
        bool, typer.Option("--smoke", help="Run the comparison in seconds on tiny policies, as comparison-smoke.")
    ] = False,
) -> None:
    """Train several recipes with several seeds and compare them: interquartile means, probability of improvement.

    The optimality gap is the mean amount by which the seeds are below `--target`. The MLflow run has performance
    profiles: the share of the seeds above each score.

    The recipes must have the same data, evaluation and initial policy. Each recipe gets the number of rounds that comes
    nearest to the budget. For a method that samples nothing, the completions are those of its training data. A training
    whose policy collapsed or did not change is listed, and the exit status is then 3.

    Example: `rewardflow compare rloo grpo remax --seeds 5 --budget 15000`
    """
    from models.recipes.find import find_recipe

    for recipe in recipes:
        find_recipe(recipe)  # as above
    from models.recipes.comparison import contenders

    chosen = overrides or []
    contenders(recipes, chosen, seeds, metric, budget, smoke, target)  # reports errors before Prefect starts
    from flows.runtime.called_flow import prepare_flow

    ready = prepare_flow()
    from flows.compare import compare as compared
    from flows.runtime.outcome import comparison_lines

    ready()
    run, standings, costs, lost = compared(recipes, chosen, seeds, metric, budget, smoke, target)
    interrupt.raise_again()
    print(comparison_lines(run, standings, costs, lost, metric, state_folder()))
    if lost:
        raise typer.Exit(NOTHING_LEARNED)

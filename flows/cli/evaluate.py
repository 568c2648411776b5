"""The command `rewardflow evaluate`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from flows.runtime.command_options import ModelOption, meant_policy
from flows.runtime.environment import state_folder, writable_state_folder
from models.base.disk import require_space
from models.base.errors import UserError
from tasks.runner import interrupt

PANEL = "Measure"


def evaluate(
    policy: Annotated[
        str,
        typer.Argument(
            metavar="VERSION|FOLDER",
            help="Number of a version, NAME/VERSION, an alias such as champion, or a model folder.",
        ),
    ],
    strategy: Annotated[
        str, typer.Option("--strategy", help="Strategy for each turn; `rewardflow parts strategy` lists them.")
    ],
    recipe: Annotated[
        str, typer.Option("--recipe", help="Recipe with the problems and episodes. Default: the version's recipe.")
    ] = "",
    overrides: Annotated[
        list[str] | None,
        typer.Option(
            "--set", "-s", metavar="KEY=VALUE", help="Override a key of the recipe, or `strategy.KEY` of the strategy."
        ),
    ] = None,
    model: ModelOption = "",
) -> None:
    """Evaluate a policy with and without an evaluation strategy, on the same problems. Nothing is trained.

    The output shows the gain of the strategy with its interval, and its cost: calls per turn, tokens read and written.
    Both evaluations are child runs of one run.

    Example: `rewardflow evaluate champion --strategy vote --set strategy.drafts=9`
    """
    from models.recipes.find import find_recipe

    if recipe:
        find_recipe(recipe)
    from models.recipes.strategy import read_strategy

    # This reports errors before Prefect starts, which takes seconds.
    _, strategy_overrides = read_strategy(strategy, overrides or [])
    from models.policies.folder import check_model_folder
    from models.recipes.load import load_recipe
    from tasks.registered.recorded_recipe import recorded_arguments
    from tasks.tracking import recorded, store

    folder = Path(policy).expanduser()
    recipe_overrides: list[str] = []
    if folder.is_dir():
        if not recipe:
            raise UserError(f"{policy} is a folder: --recipe says on whose problems and in which episodes")
        check_model_folder(folder)
        policy_address = str(folder.absolute())
    else:
        store.open_for_reading(state_folder())
        record = recorded.recorded(policy, lambda: meant_policy(model))
        if record.version is None:
            raise UserError(f"{record.label} is not a version; `rewardflow models` lists what can be measured")
        policy_address = f"{record.version.name}/{record.version.version}"
        if not recipe:
            recipe, recipe_overrides = recorded_arguments(record)
    load_recipe(recipe, [*recipe_overrides, *strategy_overrides])
    require_space(state_folder())
    writable_state_folder()
    from flows.runtime import console
    from flows.servers import temporary_server

    server_answers = temporary_server.start(state_folder())
    from flows.evaluate_strategy import evaluate_strategy
    from flows.runtime.outcome import strategy_lines

    console.quiet(caller_prints_error=True)
    server_answers()
    comparison = evaluate_strategy(policy_address, strategy, recipe, [*recipe_overrides, *(overrides or [])])
    interrupt.raise_again()
    print(strategy_lines(comparison.run, comparison.plain, comparison.strategy, state_folder()))

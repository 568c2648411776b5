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

    _, own = read_strategy(strategy, overrides or [])  # reports errors before Prefect starts, which takes seconds
    from models.policies.folder import check_model_folder
    from models.recipes.load import load_recipe
    from tasks.registered.recorded_recipe import asked_of
    from tasks.tracking import recorded, store

    folder = Path(policy).expanduser()
    asked: list[str] = []
    if folder.is_dir():
        if not recipe:
            raise UserError(f"{policy} is a folder: --recipe says on whose problems and in which episodes")
        check_model_folder(folder)
        named = str(folder.absolute())
    else:
        store.open_for_reading(state_folder())
        said = recorded.recorded(policy, lambda: meant_policy(model))
        if said.version is None:
            raise UserError(f"{said.label} is not a version; `rewardflow models` lists what can be measured")
        named = f"{said.version.name}/{said.version.version}"
        if not recipe:
            recipe, asked = asked_of(said)
    load_recipe(recipe, [*asked, *own])
    require_space(state_folder())
    writable_state_folder()
    from flows.runtime import console
    from flows.servers import temporary_server

    server_answers = temporary_server.start(state_folder())
    from flows.evaluate_strategy import evaluate_strategy
    from flows.runtime.outcome import strategy_lines

    console.quiet(caller_prints_error=True)
    server_answers()
    compared = evaluate_strategy(named, strategy, recipe, [*asked, *(overrides or [])])
    interrupt.raise_again()
    print(strategy_lines(compared.run, compared.plain, compared.strategy, state_folder()))

"""Measure: a policy with a strategy of evaluation."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from flows.commands.options import ModelOption, meant_policy
from flows.environment import state_folder, writable_state_folder
from models.disk import require_space
from models.errors import UserError
from tasks import interrupt


def evaluate(
    policy: Annotated[
        str,
        typer.Argument(
            metavar="VERSION|FOLDER",
            help="Number of a version, NAME/VERSION, an alias such as champion, or a model folder.",
        ),
    ],
    strategy: Annotated[str, typer.Option("--strategy", help="How each turn is made; `rewardflow parts strategy`.")],
    recipe: Annotated[
        str, typer.Option("--recipe", help="Whose problems and episodes; the version's own, if left out.")
    ] = "",
    overrides: Annotated[
        list[str] | None,
        typer.Option(
            "--set", "-s", metavar="KEY=VALUE", help="Override a key of the recipe, or `strategy.KEY` of the strategy."
        ),
    ] = None,
    model: ModelOption = "",
) -> None:
    """Measure a policy with a strategy of evaluation, and without it on the same problems; nothing is trained.

    Says what the strategy gains, with its interval, and what it takes: calls a turn, tokens read and written. Both
    evaluations are child runs of one run.

    Example: `rewardflow evaluate champion --strategy vote --set strategy.drafts=9`
    """
    from models.recipe.find import find_recipe

    if recipe:
        find_recipe(recipe)
    from models.recipe.strategy import read_strategy

    _, own = read_strategy(strategy, overrides or [])  # what is wrong is said before Prefect takes seconds to start
    from models.policy.folder import check_model_folder
    from models.recipe.load import load_recipe
    from tasks.recorded_recipe import asked_of
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
            raise UserError(f"{said.label} is no version; `rewardflow models` lists what can be measured")
        named = f"{said.version.name}/{said.version.version}"
        if not recipe:
            recipe, asked = asked_of(said)
    load_recipe(recipe, [*asked, *own])
    require_space(state_folder())
    writable_state_folder()
    from flows import console, temporary_server

    server_answers = temporary_server.start(state_folder())
    from flows.evaluate_strategy import evaluate_strategy
    from flows.outcome import strategy_lines

    console.quiet(told_at_the_end=True)
    server_answers()
    compared = evaluate_strategy(named, strategy, recipe, [*asked, *(overrides or [])])
    interrupt.raise_again()
    print(strategy_lines(compared.run, compared.plain, compared.strategy, state_folder()))


COMMANDS = (evaluate,)

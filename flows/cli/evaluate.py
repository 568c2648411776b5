"""The command `rewardflow evaluate`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from flows.runtime.command_options import ModelOption
from flows.runtime.environment import state_folder
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
        str,
        typer.Option(
            "--strategy",
            help="Strategy for each turn; `rewardflow parts strategy` lists them. Required without --sweep.",
        ),
    ] = "",
    sweep: Annotated[
        bool, typer.Option("--sweep", help="Compare strategies at several budgets, by difficulty of the problems.")
    ] = False,
    recipe: Annotated[
        str, typer.Option("--recipe", help="Recipe with the problems and episodes. Default: the version's recipe.")
    ] = "",
    overrides: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            "-s",
            metavar="KEY=VALUE",
            help="Override a key of the recipe, `strategy.KEY` of the strategy, or `sweep.KEY` of the sweep.",
        ),
    ] = None,
    model: ModelOption = "",
    json_file: Annotated[
        Path | None, typer.Option("--json", metavar="FILE", help="Write the result of a sweep as JSON.")
    ] = None,
) -> None:
    """Evaluate a policy with and without an evaluation strategy, on the same problems. Nothing is trained.

    The output shows the gain of the strategy with its interval, and its cost: calls per turn, tokens read and written.
    Both evaluations are child runs of one run.

    With --sweep, several strategies are measured at several budgets (answers per turn) with several scorers. The best
    for each difficulty is chosen on one half of the problems, and its gain is measured on the other. Settings:
    sweep.strategies, sweep.budgets, sweep.scorers and sweep.difficulty. A measured cell is not measured again.

    Example: `rewardflow evaluate champion --strategy vote --set strategy.drafts=9`
    """
    from models.recipes.find import find_recipe

    if sweep == bool(strategy):
        raise UserError("name either a strategy (--strategy NAME) or a sweep over several (--sweep)")
    if json_file is not None and not sweep:
        raise UserError("--json: it is for the result of a sweep; add --sweep")
    if recipe:
        find_recipe(recipe)
    from models.recipes.strategy import read_strategy
    from models.recipes.sweep import read_sweep

    # This reports errors before Prefect starts, which takes seconds.
    chosen = overrides or []
    own_overrides = read_sweep(chosen)[1] if sweep else read_strategy(strategy, chosen)[1]
    from flows.runtime.named_policies import named_policies
    from models.policies.folder import check_model_folder
    from models.recipes.load import load_recipe
    from tasks.tracking import store

    folder = Path(policy).expanduser()
    recipe_overrides: list[str] = []
    if folder.is_dir():
        if not recipe:
            raise UserError(f"{policy} is a folder: --recipe says on whose problems and in which episodes")
        check_model_folder(folder)
        policy_address = str(folder.absolute())
    else:
        store.open_for_reading(state_folder())
        named = named_policies((policy,), model, recipe, "measured")
        (policy_address,), recipe, recipe_overrides = named.addresses, named.recipe, named.overrides
    load_recipe(recipe, [*recipe_overrides, *own_overrides])
    from flows.runtime.called_flow import prepare_flow

    ready = prepare_flow()
    from flows.evaluate_strategy import evaluate_strategy
    from flows.evaluate_sweep import evaluate_sweep
    from flows.runtime.outcome import columns, strategy_lines

    ready()
    if not sweep:
        comparison = evaluate_strategy(policy_address, strategy, recipe, [*recipe_overrides, *chosen])
        interrupt.raise_again()
        print(strategy_lines(comparison.run, comparison.plain, comparison.strategy, state_folder()))
        return
    run, result = evaluate_sweep(policy_address, recipe, [*recipe_overrides, *chosen])
    interrupt.raise_again()
    from flows.servers.servers import page_address
    from models.base.atomic_write import write_file
    from tasks.pages.sweep_page import as_json, cell_rows, choice_rows
    from tasks.tracking.summaries import page_of_run

    if json_file is not None:
        write_file(json_file, as_json(result))
    print("\naccuracy in percent with 95 % intervals; tokens written, tokens scored and time per turn")
    for rows in (cell_rows(result), choice_rows(result)):
        print("\n".join(["", *columns([list(rows[0]), *(list(row.values()) for row in rows)])]))
    print(f"\nrun        {page_address(state_folder(), 'mlflow')}{page_of_run(run)}")

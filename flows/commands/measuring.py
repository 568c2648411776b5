"""Commands that measure: a policy with an evaluation strategy, and a reward model."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from flows.commands.options import ModelOption, SetOption, meant_policy
from flows.runtime.environment import state_folder, writable_state_folder
from models.base.disk import require_space
from models.base.errors import UserError
from tasks.runner import interrupt


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

    console.quiet(told_at_the_end=True)
    server_answers()
    compared = evaluate_strategy(named, strategy, recipe, [*asked, *(overrides or [])])
    interrupt.raise_again()
    print(strategy_lines(compared.run, compared.plain, compared.strategy, state_folder()))


def reward_report(
    model: Annotated[
        str, typer.Argument(metavar="NAME/VERSION", help="A reward model, as `rewardflow models` lists it.")
    ],
    policies: Annotated[
        list[str] | None,
        typer.Option(
            "--policy",
            metavar="NAME/VERSION|FOLDER",
            help="Whose completions it scores, several times for several; the recipe's champion, if left out.",
        ),
    ] = None,
    others: Annotated[
        list[str] | None,
        typer.Option("--with", metavar="NAME/VERSION", help="Another reward model, with which it should agree."),
    ] = None,
    recipe: Annotated[
        str, typer.Option("--recipe", help="Whose data and problems; the reward model's own, if left out.")
    ] = "",
    overrides: SetOption = None,
) -> None:
    """Test a reward model: held-out pairs, completions of policies, biases, a suffix that fools it.

    The MLflow run has best-of-n curves and calibration as figures. With `reward_model.report`, a recipe makes the same
    report on the reward model that it fits, before a policy is trained on it. Exit status 1 if a requirement of the
    report is not met.

    Example: `rewardflow reward-report arithmetic-reward-model/1 --policy arithmetic-policy/1`
    """
    from models.recipes.find import find_recipe

    if recipe:
        find_recipe(recipe)
    from models.recipes.load import load_recipe
    from tasks.registered.policy import named_version
    from tasks.registered.recorded_recipe import asked_of
    from tasks.steps.promote import policy_name
    from tasks.tracking import recorded, registry, store

    store.open_for_reading(state_folder())
    said = recorded.recorded(model, lambda: model)
    if said.version is None:
        raise UserError(f"{said.label} is not a version; `rewardflow models` lists what can be measured")
    asked: list[str] = []
    if not recipe:
        recipe, asked = asked_of(said)
    asked += overrides or []
    checked = load_recipe(recipe, asked)
    if checked.reward_model is None:
        raise UserError(f"{recipe}: reward_model is null, so it does not say how one reads")
    if checked.reward_model.report is None:
        asked += ["reward_model.report={}"]
    whose = list(policies or [])
    if not whose:
        name = policy_name(checked)
        champion = registry.champion(name)
        if champion is None:
            raise UserError(f"{name} has no champion; --policy names whose completions are scored")
        whose = [f"{name}/{champion.version}"]
    for policy in whose:
        named_version(policy)
    require_space(state_folder())
    writable_state_folder()
    from flows.runtime import console
    from flows.servers import temporary_server

    server_answers = temporary_server.start(state_folder())
    from flows.reward_report import reward_report as report
    from flows.runtime.outcome import report_lines
    from tasks.steps.report_reward import distrusted

    console.quiet(told_at_the_end=True)
    server_answers()
    made = report(f"{said.version.name}/{said.version.version}", whose, others or [], recipe, asked)
    interrupt.raise_again()
    print(report_lines(made.run, made.result, state_folder()))
    if distrusted(made.result):
        raise typer.Exit(1)


COMMANDS = (evaluate, reward_report)

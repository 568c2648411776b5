"""The command `rewardflow reward-report`."""

from __future__ import annotations

from typing import Annotated

import typer

from flows.runtime.command_options import SetOption
from flows.runtime.environment import state_folder
from models.base.errors import UserError
from tasks.runner import interrupt

PANEL = "Measure"


def reward_report(
    model: Annotated[
        str, typer.Argument(metavar="NAME/VERSION", help="Reward model, as `rewardflow models` lists it.")
    ],
    policies: Annotated[
        list[str] | None,
        typer.Option(
            "--policy",
            metavar="NAME/VERSION|FOLDER",
            help="Policy whose completions are scored. Repeatable. Default: the recipe's champion.",
        ),
    ] = None,
    others: Annotated[
        list[str] | None,
        typer.Option("--with", metavar="NAME/VERSION", help="Another reward model, to measure agreement with."),
    ] = None,
    recipe: Annotated[
        str, typer.Option("--recipe", help="Recipe with the data and problems. Default: the reward model's recipe.")
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
    from tasks.registered.recorded_recipe import recorded_arguments
    from tasks.steps.promote import policy_name
    from tasks.tracking import recorded, registry, store

    store.open_for_reading(state_folder())
    record = recorded.recorded(model, lambda: model)
    if record.version is None:
        raise UserError(f"{record.label} is not a version; `rewardflow models` lists what can be measured")
    recipe_overrides: list[str] = []
    if not recipe:
        recipe, recipe_overrides = recorded_arguments(record)
    recipe_overrides += overrides or []
    loaded_recipe = load_recipe(recipe, recipe_overrides)
    if loaded_recipe.reward_model is None:
        raise UserError(f"{recipe}: reward_model is null, so it does not say how one reads")
    if loaded_recipe.reward_model.report is None:
        recipe_overrides += ["reward_model.report={}"]
    scored_policies = list(policies or [])
    if not scored_policies:
        name = policy_name(loaded_recipe)
        champion = registry.champion(name)
        if champion is None:
            raise UserError(f"{name} has no champion; --policy names whose completions are scored")
        scored_policies = [f"{name}/{champion.version}"]
    for policy in scored_policies:
        named_version(policy)
    from flows.runtime.called_flow import prepare_flow

    ready = prepare_flow()
    from flows.reward_report import reward_report as report
    from flows.runtime.outcome import report_lines
    from tasks.steps.report_reward import distrusted

    ready()
    measurement = report(
        f"{record.version.name}/{record.version.version}", scored_policies, others or [], recipe, recipe_overrides
    )
    interrupt.raise_again()
    print(report_lines(measurement.run, measurement.result, state_folder()))
    if distrusted(measurement.result):
        raise typer.Exit(1)

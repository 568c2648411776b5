"""The command `rewardflow merge`."""

from __future__ import annotations

from typing import Annotated, Literal

import typer

from flows.runtime.command_options import ModelOption, SetOption
from flows.runtime.environment import state_folder
from models.base.errors import UserError
from tasks.runner import interrupt

PANEL = "Train"


def merge(
    models: Annotated[
        list[str],
        typer.Argument(
            metavar="VERSION|FOLDER...",
            help="Number of a version, NAME/VERSION, an alias, or a model folder.",
        ),
    ],
    method: Annotated[
        Literal["linear", "task_arithmetic", "ties"],
        typer.Option("--method", help="How the weights are merged; see docs/export.md."),
    ],
    weight: Annotated[
        list[float] | None,
        typer.Option("--weight", help="Weight of each policy, in their order; repeat the option. Default: 1 each."),
    ] = None,
    base: Annotated[
        str,
        typer.Option(
            "--base",
            metavar="VERSION|FOLDER",
            help="Model that the policies were trained from, for task_arithmetic and ties. Default: the recipe's warm "
            "start.",
        ),
    ] = "",
    density: Annotated[
        float, typer.Option("--density", help="Share of the differences that ties keeps, the largest of each tensor.")
    ] = 1.0,
    scale: Annotated[
        float, typer.Option("--scale", help="Factor of the merged difference, for task_arithmetic and ties.")
    ] = 1.0,
    recipe: Annotated[
        str,
        typer.Option("--recipe", help="Recipe with the problems and the gate. Default: that of the first version."),
    ] = "",
    overrides: SetOption = None,
    model: ModelOption = "",
) -> None:
    """Merge policies of one architecture into a candidate. Evaluate it and let the gate of a recipe decide on it.

    Example: `rewardflow merge 3 5 --method ties --density 0.2`
    """
    from models.recipes.find import find_recipe

    if recipe:
        find_recipe(recipe)
    from flows.runtime.named_policies import named_policies
    from models.policies.merge import MergeSettings
    from models.policies.merged_folder import check_mergeable
    from models.recipes.load import load_recipe
    from tasks.registered.policy import named_policy
    from tasks.tracking import store

    weights = tuple(weight or [1.0] * len(models))
    if len(weights) != len(models):
        raise UserError(f"--weight: {len(weights)} given for {len(models)} models; give one for each, or none")
    settings = MergeSettings(method=method, weights=weights, density=density, scale=scale)
    if base and not settings.needs_base:
        raise UserError(f"--base: {method} merges the weights themselves and needs no base")
    store.open_for_reading(state_folder())
    policies = named_policies((*models, *([base] if base else [])), model, recipe, "merged")
    named, recipe = policies.addresses, policies.recipe
    if not recipe:
        raise UserError("--recipe: all models are folders; name the recipe whose gate judges the result")
    folders = [named_policy(name)[0].folder for name in named]
    check_mergeable(folders[: len(models)], base=folders[-1] if base else None)
    load_recipe(recipe, [*policies.overrides, *(overrides or [])])
    from flows.runtime.called_flow import prepare_flow

    ready = prepare_flow()
    from flows.merge import merge as merge_flow
    from flows.runtime.outcome import closing_lines

    ready()
    outcome = merge_flow(
        named[: len(models)],
        named[-1] if base else None,
        settings,
        recipe,
        [*policies.overrides, *(overrides or [])],
    )
    interrupt.raise_again()
    print(closing_lines(outcome, state_folder()))

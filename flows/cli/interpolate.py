"""The command `rewardflow interpolate`."""

from __future__ import annotations

from typing import Annotated

import typer

from flows.runtime.command_options import ModelOption, SetOption
from flows.runtime.environment import state_folder
from models.base.errors import UserError
from tasks.runner import interrupt

PANEL = "Measure"


def interpolate(
    first: Annotated[
        str,
        typer.Argument(metavar="VERSION|FOLDER", help="Version: number, NAME/VERSION or alias; or a model folder."),
    ],
    other: Annotated[str, typer.Argument(metavar="VERSION|FOLDER", help="Second policy, of equal architecture.")],
    share: Annotated[
        list[float] | None,
        typer.Option("--share", help="Weight of the second policy; repeat it. Default: 0, 0.25, 0.5, 0.75 and 1."),
    ] = None,
    recipe: Annotated[
        str, typer.Option("--recipe", help="Recipe with the problems. Default: that of the first version.")
    ] = "",
    overrides: SetOption = None,
    model: ModelOption = "",
) -> None:
    """Mix the weights of two policies in several shares, and measure accuracy and diversity of the samples of each.

    The mixtures that no other surpasses in both are on the front. None becomes a candidate: `rewardflow merge` makes
    one of a mixture.

    Example: `rewardflow interpolate 3 5 --share 0 --share 0.5 --share 1`
    """
    from models.recipes.find import find_recipe

    shares = share or [0.0, 0.25, 0.5, 0.75, 1.0]
    if wrong := [value for value in shares if not 0 <= value <= 1]:
        raise UserError(f"--share: {wrong[0]:g} is not between 0 and 1")
    if recipe:
        find_recipe(recipe)
    from flows.runtime.named_policies import named_policies
    from models.policies.merged_folder import check_mergeable
    from models.recipes.load import load_recipe
    from tasks.registered.policy import named_policy
    from tasks.tracking import store

    store.open_for_reading(state_folder())
    policies = named_policies((first, other), model, recipe, "measured")
    if not policies.recipe:
        raise UserError("--recipe: both are folders; name the recipe on whose problems they are measured")
    first, other = policies.addresses
    check_mergeable([named_policy(name)[0].folder for name in policies.addresses])
    given_overrides = [*policies.overrides, *(overrides or [])]
    load_recipe(policies.recipe, given_overrides)
    from flows.runtime.called_flow import prepare_flow

    ready = prepare_flow()
    from flows.merge import interpolate as measure
    from flows.runtime.outcome import columns
    from flows.servers.servers import page_address
    from models.evaluation.front import mixture_rows
    from tasks.tracking.summaries import page_of_run

    ready()
    run, mixtures = measure(first, other, sorted(set(shares)), policies.recipe, given_overrides)
    interrupt.raise_again()
    print("\naccuracy of the samples and share of distinct samples, with 95 % intervals")
    print("\n".join(["", *columns(mixture_rows(mixtures))]))
    print(f"\nrun        {page_address(state_folder(), 'mlflow')}{page_of_run(run)}")

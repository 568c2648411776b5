"""The command `rewardflow power`."""

from __future__ import annotations

from typing import Annotated

import typer

from flows.runtime.command_options import RecipeArgument, SetOption
from flows.runtime.environment import state_folder

PANEL = "Registry"


def power(
    recipe: RecipeArgument,
    difference: Annotated[
        float | None,
        typer.Option(
            "--difference", help="Difference in accuracy to detect, such as 0.02. Default: a few typical ones."
        ),
    ] = None,
    overrides: SetOption = None,
) -> None:
    """Print how many problems the gate needs to detect a difference with 80 % power.

    Example: `rewardflow power arithmetic --difference 0.02`
    """
    from models.recipes.load import load_recipe
    from tasks.gate.power import gate_power
    from tasks.tracking import store

    checked = load_recipe(recipe, overrides or [])
    store.configure(state_folder())
    print(gate_power(checked, difference))

"""The command `rewardflow plan`."""

from __future__ import annotations

from typing import Annotated

import typer

from flows.runtime.command_options import RecipeArgument, SetOption
from flows.runtime.environment import state_folder

PANEL = "Train"

DOES_NOT_FIT = 3
"""Exit status of a plan for a device with too little memory."""


def plan(
    recipe: RecipeArgument,
    overrides: SetOption = None,
    memory: Annotated[
        float | None,
        typer.Option("--memory", help="Memory of the GPU to plan for, GiB, such as 80. Default: this machine's."),
    ] = None,
    prompt: Annotated[int, typer.Option("--prompt", min=1, help="Tokens per prompt; the data are not read.")] = 256,
) -> None:
    """Print, before anything starts, parameters, tokens per round, memory by part, and whether it fits the device.

    The figures come from the code that will run, from shapes alone: no weights are loaded. Exit status 3 if it does not
    fit.

    Example: `rewardflow plan real/qwen3_06b_gsm8k_grpo --memory 80`
    """
    from models.recipes.find import find_recipe

    find_recipe(recipe)
    from models.policies.folder import is_registered
    from models.recipes.load import load_recipe
    from models.recipes.plan.report import planned

    loaded, whence = load_recipe(recipe, overrides or []), ""
    if is_registered(loaded.policy.base):
        from tasks.registered.base import current_base
        from tasks.tracking import store

        store.open_for_reading(state_folder())
        loaded, base = current_base(loaded)
        whence = str(base)
    page, fits = planned(loaded, prompt, memory, whence)
    print(page)
    if not fits:
        raise typer.Exit(DOES_NOT_FIT)

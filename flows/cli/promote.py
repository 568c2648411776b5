"""The command `rewardflow promote`."""

from __future__ import annotations

from typing import Annotated

import typer

from flows.runtime.command_options import ByOption, ModelOption, Why, meant_policy, print_noticed
from flows.runtime.environment import writable_state_folder

PANEL = "Registry"


def promote(
    version: Annotated[int, typer.Argument(help="Version to make champion.")],
    model: ModelOption = "",
    by: ByOption = "",
    why: Why = "by hand",
) -> None:
    """Make a version the champion by hand. The champion before it becomes `previous`.

    Example: `rewardflow promote 3`
    """
    from tasks.tracking import aliases, store

    store.configure(writable_state_folder())
    name = meant_policy(model)
    print_noticed(name, aliases.record_outside_changes(name))
    new = aliases.promote(name, version, why=why, by=by)
    print(f"champion of {new.name}: version {new.version}")

"""Promote and take back."""

from __future__ import annotations

from typing import Annotated

import typer

from flows.commands.options import ModelOption, meant_policy
from flows.environment import state_folder


def promote(version: Annotated[int, typer.Argument(help="Version to make champion.")], model: ModelOption = "") -> None:
    """Make a version the champion by hand; the champion before it becomes `previous`.

    Example: `rewardflow promote 3`
    """
    from tasks.tracking import aliases, store

    store.configure(state_folder())
    new = aliases.promote(meant_policy(model), version)
    print(f"champion of {new.name}: version {new.version}")


def rollback(model: ModelOption = "") -> None:
    """Make the previous champion champion again; twice swaps back.

    Example: `rewardflow rollback`
    """
    from tasks.tracking import aliases, store

    store.configure(state_folder())
    new = aliases.rollback(meant_policy(model))
    print(f"champion of {new.name}: version {new.version}")


COMMANDS = (promote, rollback)

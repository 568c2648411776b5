"""The command `rewardflow anchor`."""

from __future__ import annotations

from typing import Annotated

import typer

from flows.runtime.command_options import ByOption, ModelOption, Why, meant_policy
from flows.runtime.environment import writable_state_folder

PANEL = "Registry"


def anchor(
    version: Annotated[int, typer.Argument(help="Version that the guards are compared with.")],
    model: ModelOption = "",
    by: ByOption = "",
    why: Why = "by hand",
) -> None:
    """Set the version that the gate's guards are compared with next to the champion. Default: the first champion.

    Example: `rewardflow anchor 3`
    """
    from tasks.tracking import aliases, store

    store.configure(writable_state_folder())
    new = aliases.set_anchor(meant_policy(model), version, by=by, why=why)
    print(f"anchor of {new.name}: version {new.version}")

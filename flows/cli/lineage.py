"""The command `rewardflow lineage`."""

from __future__ import annotations

from typing import Annotated

import typer

from flows.runtime.command_options import ModelOption, meant_policy
from flows.runtime.environment import state_folder
from models.base.errors import UserError

PANEL = "Runs"


def lineage(
    version: Annotated[int | None, typer.Argument(help="Version of the policy.")] = None,
    data: Annotated[
        str,
        typer.Option("--data", metavar="HASH", help="List the models that were trained on this version of the data."),
    ] = "",
    model: ModelOption = "",
) -> None:
    """Print the chain from the raw data's hash to the alias; with --data, the models trained on a version of the data.

    Examples: `rewardflow lineage 1`, `rewardflow lineage --data e2775551`
    """
    from tasks.tracking import data_use, store
    from tasks.tracking import lineage as chain

    if (version is None) == (not data):
        raise UserError("name either a version or, with --data, a version of the data")
    store.open_for_reading(state_folder())
    if version is None:
        print(data_use.render(data, data_use.uses_of(data)))
        return
    print(chain.render(chain.lineage(meant_policy(model), version)))

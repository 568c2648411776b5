"""Arguments and options that several commands share."""

from __future__ import annotations

from typing import Annotated

import typer

from models.base.errors import UserError

ModelOption = Annotated[str, typer.Option("--model", help="Registered model; the only policy there is, if left out.")]
SetOption = Annotated[
    list[str] | None, typer.Option("--set", "-s", metavar="KEY=VALUE", help="Override a key of the recipe.")
]

ByOption = Annotated[str, typer.Option("--by", metavar="NAME", help="Who decides; who is logged in, if left out.")]


def meant_policy(model: str) -> str:
    """Return the name of the registered model: the given one, or the only registered policy."""
    if model:
        return model
    from tasks.tracking import registry

    names = registry.policy_names()
    if len(names) == 1:
        return names[0]
    if not names:
        raise UserError("no policy is registered yet; `rewardflow run RECIPE` trains one")
    raise UserError(f"which policy? name one with --model: {', '.join(names)}")

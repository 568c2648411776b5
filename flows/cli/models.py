"""The command `rewardflow models`."""

from __future__ import annotations

from typing import Annotated

import typer

from flows.runtime.environment import state_folder
from models.base.errors import UserError

PANEL = "Registry"


def models(
    name: Annotated[str, typer.Argument(help="Registered model. Default: all.")] = "",
) -> None:
    """List the registered models with their versions, newest first: aliases, held-out accuracy, verdict.

    Example: `rewardflow models arithmetic-policy`
    """
    from tasks.tracking import store

    if not store.exists(state_folder()):
        print("no models yet; `rewardflow run RECIPE` trains one")
        return
    from flows.runtime.outcome import version_lines
    from tasks.tracking import registry

    store.open_for_reading(state_folder())
    known = registry.model_names()
    if name and name not in known:
        raise UserError(f"no model {name!r}; there is {', '.join(known) or 'none yet'}")
    print(version_lines([version for model in ([name] if name else known) for version in registry.versions(model)]))

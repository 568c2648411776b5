"""The command `rewardflow audit`."""

from __future__ import annotations

from typing import Annotated

import typer

from flows.runtime.command_options import ModelOption, meant_policy
from flows.runtime.environment import state_folder
from models.base.errors import UserError

PANEL = "Registry"


def audit(
    model: ModelOption = "",
    as_json: Annotated[
        bool, typer.Option("--json", help="Print JSON Lines: one entry per line, as it is hashed.")
    ] = False,
) -> None:
    """Print who changed a model's champion, when and why, and check that the log was not tampered with.

    Exit status 1 if the log was changed. Example: `rewardflow audit`
    """
    import json
    from dataclasses import asdict

    from tasks.tracking import audit as log
    from tasks.tracking import store

    store.open_for_reading(state_folder())
    name = meant_policy(model)
    entries = log.entries(name)
    for entry in entries:
        print(json.dumps(asdict(entry), ensure_ascii=False) if as_json else log.line(entry))
    if broken := log.broken(name):
        raise UserError(f"the audit log of {name} was changed: {'; '.join(broken)}")
    if not as_json:
        counted = "1 entry" if len(entries) == 1 else f"{len(entries)} entries"
        print(f"{counted}, none changed" if entries else f"nothing was decided about {name} yet")

"""The command `rewardflow automations`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from flows.runtime.environment import writable_state_folder

PANEL = "Operations"


def automations(
    remove: Annotated[bool, typer.Option("--remove", help="Remove the automations and their addresses.")] = False,
) -> None:
    """Make Prefect's server report crashes, time-outs and silence itself, for when no process of Rewardflow is alive.

    For deployments of a work pool; `rewardflow schedule` does it by itself. REWARDFLOW_NOTIFY_URL names the recipients.
    Example: `rewardflow automations`
    """
    from flows.schedule.automations import create_automations, remove_automations, require_lasting_server
    from flows.schedule.deployments import read_deployments
    from models.base.errors import UserError
    from tasks.messages.receivers import URLS

    writable_state_folder()
    require_lasting_server()
    done = remove_automations() if remove else create_automations(read_deployments(Path("prefect.yaml")))
    if not done and not remove:
        raise UserError(f"{URLS} names no receiver: set it to an address that takes JSON by POST")
    print("\n".join(f"{'removed' if remove else 'on'}  {name}" for name in done) or "there were none")

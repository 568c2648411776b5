"""The command `rewardflow approvals`."""

from __future__ import annotations

from typing import Annotated

import typer

from flows.runtime.environment import writable_state_folder

PANEL = "Registry"


def approvals(
    port: Annotated[int, typer.Option("--port", help="Port for MLflow's webhooks.")] = 4205,
    host: Annotated[str, typer.Option("--host", help="Address to listen on.")] = "127.0.0.1",
    address: Annotated[
        str,
        typer.Option(
            "--address",
            metavar="URL",
            help="URL at which MLflow's server reaches this command. Default: host and port.",
        ),
    ] = "",
) -> None:
    """Carry out decisions made on MLflow's page, until Ctrl-C; `rewardflow schedule` also does this once a minute.

    To decide, set the tag `approve` or `reject` to `NAME: REASON` on the page of a version that waits.
    Example: `rewardflow approvals`
    """
    from flows.schedule.approvals import serve_approvals
    from tasks.tracking import store

    store.configure(writable_state_folder())
    serve_approvals(port, host, address)

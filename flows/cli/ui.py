"""The command `rewardflow ui`."""

from __future__ import annotations

from typing import Annotated

import typer

from flows.runtime import collection
from flows.runtime.command_options import MlflowPort, PrefectPort
from flows.runtime.environment import MLFLOW_PORT, PREFECT_PORT, state_folder, writable_state_folder

PANEL = "Operations"


def ui(
    mlflow_port: MlflowPort = MLFLOW_PORT,
    prefect_port: PrefectPort = PREFECT_PORT,
    stop: Annotated[bool, typer.Option("--stop", help="Stop servers that an earlier command left running.")] = False,
) -> None:
    """Start the MLflow and Prefect servers and print their addresses. Ctrl-C stops them.

    Example: `rewardflow ui --mlflow-port 5001`
    """
    from flows.servers.servers import end_servers, serve

    if stop:
        print("\n".join(end_servers(state_folder())) or "no server was running")
        return
    collection.begin()
    serve(writable_state_folder(), mlflow_port, prefect_port)

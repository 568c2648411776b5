"""The command `rewardflow schedule`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from flows.runtime import collection
from flows.runtime.command_options import MlflowPort, PrefectPort
from flows.runtime.environment import MLFLOW_PORT, PREFECT_PORT, writable_state_folder

PANEL = "Operations"


def schedule(
    mlflow_port: MlflowPort = MLFLOW_PORT,
    prefect_port: PrefectPort = PREFECT_PORT,
    install: Annotated[
        bool,
        typer.Option("--install", help="Write a systemd unit that serves the schedule, print it, and start nothing."),
    ] = False,
) -> None:
    """Serve the deployments of prefect.yaml on their schedules until Ctrl-C.

    Example: `rewardflow schedule`, or `rewardflow schedule --install` for a machine that restarts by itself
    """
    from flows.schedule import unit
    from flows.schedule.deployments import read_deployments
    from flows.schedule.schedule import serve_schedule

    if install:
        read_deployments(Path("prefect.yaml"))
        written = unit.unit_of(Path.cwd(), writable_state_folder())
        unit.install(written)
        print(f"{written.text}\nwritten to {written.path}; now:\n")
        print("\n".join(f"    {step}" for step in written.next_steps))
        return
    collection.begin()
    serve_schedule(Path("prefect.yaml"), writable_state_folder(), mlflow_port, prefect_port)

"""Keep the factory going on this machine: check it, its servers, its schedule."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from flows import collection
from flows.environment import MLFLOW_PORT, PREFECT_PORT, state_folder, writable_state_folder

MlflowPort = Annotated[int, typer.Option("--mlflow-port", help="Port of the MLflow server on 127.0.0.1.")]
PrefectPort = Annotated[int, typer.Option("--prefect-port", help="Port of the Prefect server on 127.0.0.1.")]


def doctor(deep: Annotated[bool, typer.Option("--deep", help="Also import the large packages.")] = False) -> None:
    """Check this machine: versions, devices, disk, data, ports. Exit status 1 where something is wrong.

    Example: `rewardflow doctor`
    """
    from flows.doctor import diagnose, table

    findings = diagnose(deep=deep)
    print(table(findings))
    if not all(finding.ok for finding in findings):
        raise typer.Exit(1)


def ui(
    mlflow_port: MlflowPort = MLFLOW_PORT,
    prefect_port: PrefectPort = PREFECT_PORT,
    stop: Annotated[bool, typer.Option("--stop", help="End servers that an earlier command left.")] = False,
) -> None:
    """Start the MLflow and Prefect servers and print their addresses; Ctrl-C ends them.

    Example: `rewardflow ui --mlflow-port 5001`
    """
    from flows.servers import end_servers, serve

    if stop:
        print("\n".join(end_servers(state_folder())) or "no server was running")
        return
    collection.begin()
    serve(writable_state_folder(), mlflow_port, prefect_port)


def schedule(
    mlflow_port: MlflowPort = MLFLOW_PORT,
    prefect_port: PrefectPort = PREFECT_PORT,
    install: Annotated[
        bool, typer.Option("--install", help="Write a unit of systemd that does it, print it, and start nothing.")
    ] = False,
) -> None:
    """Serve the deployments of prefect.yaml on their schedules until Ctrl-C.

    Example: `rewardflow schedule`, or `rewardflow schedule --install` for a machine that restarts by itself
    """
    from flows import unit
    from flows.schedule import read_deployments, serve_schedule

    if install:
        read_deployments(Path("prefect.yaml"))
        written = unit.unit_of(Path.cwd(), writable_state_folder())
        unit.install(written)
        print(f"{written.text}\nwritten to {written.path}; now:\n")
        print("\n".join(f"    {step}" for step in written.next_steps))
        return
    collection.begin()
    serve_schedule(Path("prefect.yaml"), writable_state_folder(), mlflow_port, prefect_port)


COMMANDS = (doctor, ui, schedule)

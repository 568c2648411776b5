"""Commands for operation on this machine: check it, run its servers, its schedule and its messages."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from flows.runtime import collection
from flows.runtime.environment import MLFLOW_PORT, PREFECT_PORT, state_folder, writable_state_folder

MlflowPort = Annotated[int, typer.Option("--mlflow-port", help="Port of the MLflow server on 127.0.0.1.")]
PrefectPort = Annotated[int, typer.Option("--prefect-port", help="Port of the Prefect server on 127.0.0.1.")]


def doctor(deep: Annotated[bool, typer.Option("--deep", help="Also import the large packages.")] = False) -> None:
    """Check this machine: versions, devices, disk, data, ports. Exit status 1 if something is wrong.

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
    """Start the MLflow and Prefect servers and print their addresses. Ctrl-C stops them.

    Example: `rewardflow ui --mlflow-port 5001`
    """
    from flows.servers.servers import end_servers, serve

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


def automations(
    remove: Annotated[bool, typer.Option("--remove", help="Remove them, and the addresses that they have.")] = False,
) -> None:
    """Make Prefect's server report crashes, time-outs and silence itself, for when no process of Rewardflow is alive.

    For deployments of a work pool; `rewardflow schedule` does it by itself. REWARDFLOW_NOTIFY_URL names the recipients.
    Example: `rewardflow automations`
    """
    from flows.schedule.automations import put_up, require_lasting_server, take_down
    from flows.schedule.deployments import read_deployments
    from models.base.errors import UserError
    from tasks.messages.receivers import URLS

    writable_state_folder()
    require_lasting_server()
    done = take_down() if remove else put_up(read_deployments(Path("prefect.yaml")))
    if not done and not remove:
        raise UserError(f"{URLS} names no receiver: set it to an address that takes JSON by POST")
    print("\n".join(f"{'removed' if remove else 'on'}  {name}" for name in done) or "there were none")


def messages(
    send: Annotated[bool, typer.Option("--send", help="Send what waits.")] = False,
) -> None:
    """List the messages to people: waiting, sent, refused. Exit status 1 if sending failed.

    REWARDFLOW_NOTIFY_URL holds the recipients' addresses, separated by spaces. Example: `rewardflow messages --send`
    """
    from models.base.errors import UserError
    from tasks.messages.outbox import Outbox
    from tasks.messages.receivers import URLS, receivers

    outbox = Outbox(state_folder())
    to = receivers()
    passed = outbox.deliver(to) if send else None
    for host, state, event in outbox.listed():
        print(f"{event['at']}  {state:<8} {host:<24} {event['text']}")
    if not to:
        print(f"no receiver is configured: set {URLS} to an address that takes JSON by POST")
    if passed is not None:
        print(f"{passed.sent} sent")
        if passed.failures:
            raise UserError("; ".join(passed.failures))


COMMANDS = (doctor, ui, schedule, automations, messages)

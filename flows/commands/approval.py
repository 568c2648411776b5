"""Commands to approve or reject candidates that wait, and to print the log of all decisions."""

from __future__ import annotations

from typing import Annotated

import typer

from flows.commands.options import ModelOption, meant_policy
from flows.runtime.environment import state_folder, writable_state_folder
from models.base.errors import UserError

Version = Annotated[int, typer.Argument(help="Version that waits.")]
By = Annotated[str, typer.Option("--by", metavar="NAME", help="Who decides.")]
Why = Annotated[str, typer.Option("--why", metavar="TEXT", help="For the record.")]


def approve(version: Version, by: By, why: Why, model: ModelOption = "") -> None:
    """Make a candidate the champion that passed the gate and waits for approval.

    Example: `rewardflow approve 4 --by "A. Turing" --why "samples read, no complaints"`
    """
    from tasks.gate import approval
    from tasks.tracking import aliases, store

    store.configure(writable_state_folder())
    name = meant_policy(model)
    if noticed := aliases.notice(name):
        print(f"{name}: {noticed}")
    new = approval.approve(name, version, by=by, why=why)
    print(f"champion of {new.name}: version {new.version}, approved by {by}")


def reject(version: Version, by: By, why: Why, model: ModelOption = "") -> None:
    """Reject a candidate that waits for approval.

    Example: `rewardflow reject 4 --by "A. Turing" --why "answers in the wrong language"`
    """
    from tasks.gate import approval
    from tasks.tracking import store

    store.configure(writable_state_folder())
    new = approval.reject(meant_policy(model), version, by=by, why=why)
    print(f"{new.name} version {new.version}: rejected by {by}")


def approvals(
    port: Annotated[int, typer.Option("--port", help="Where MLflow's deliveries are taken.")] = 4205,
    host: Annotated[str, typer.Option("--host", help="Address to listen on.")] = "127.0.0.1",
    address: Annotated[
        str, typer.Option("--address", metavar="URL", help="By which MLflow's server reaches it; that, if left out.")
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


def audit(
    model: ModelOption = "",
    as_json: Annotated[bool, typer.Option("--json", help="An entry a line, as it is hashed.")] = False,
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


COMMANDS = (approve, reject, approvals, audit)

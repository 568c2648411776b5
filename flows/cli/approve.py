"""The command `rewardflow approve`."""

from __future__ import annotations

from flows.runtime.command_options import DecidedBy, ModelOption, WaitingVersion, Why, meant_policy
from flows.runtime.environment import writable_state_folder

PANEL = "Registry"


def approve(version: WaitingVersion, by: DecidedBy, why: Why, model: ModelOption = "") -> None:
    """Make a candidate the champion that passed the gate and waits for approval.

    Example: `rewardflow approve 4 --by "A. Turing" --why "samples read, no complaints"`
    """
    from tasks.gate import approval
    from tasks.tracking import aliases, store

    store.configure(writable_state_folder())
    name = meant_policy(model)
    if noticed := aliases.record_outside_changes(name):
        print(f"{name}: {noticed}")
    new = approval.approve(name, version, by=by, why=why)
    print(f"champion of {new.name}: version {new.version}, approved by {by}")

"""The command `rewardflow reject`."""

from __future__ import annotations

from flows.runtime.command_options import DecidedBy, ModelOption, WaitingVersion, Why, meant_policy
from flows.runtime.environment import writable_state_folder

PANEL = "Registry"


def reject(version: WaitingVersion, by: DecidedBy, why: Why, model: ModelOption = "") -> None:
    """Reject a candidate that waits for approval.

    Example: `rewardflow reject 4 --by "A. Turing" --why "answers in the wrong language"`
    """
    from tasks.gate import approval
    from tasks.tracking import store

    store.configure(writable_state_folder())
    new = approval.reject(meant_policy(model), version, by=by, why=why)
    print(f"{new.name} version {new.version}: rejected by {by}")

"""The command `rewardflow rollback`."""

from __future__ import annotations

from flows.runtime.command_options import ByOption, ModelOption, Why, meant_policy, print_noticed
from flows.runtime.environment import writable_state_folder

PANEL = "Registry"


def rollback(
    model: ModelOption = "",
    by: ByOption = "",
    why: Why = "",
) -> None:
    """Make the previous champion the champion again. A second rollback swaps them back.

    Example: `rewardflow rollback`
    """
    from tasks.tracking import aliases, store

    store.configure(writable_state_folder())
    name = meant_policy(model)
    print_noticed(name, aliases.record_outside_changes(name))
    new = aliases.rollback(name, by=by, why=why)
    print(f"champion of {new.name}: version {new.version}")

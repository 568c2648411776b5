"""The command `rewardflow messages`."""

from __future__ import annotations

from typing import Annotated

import typer

from flows.runtime.environment import state_folder

PANEL = "Operations"


def messages(
    send: Annotated[bool, typer.Option("--send", help="Send the waiting messages now.")] = False,
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

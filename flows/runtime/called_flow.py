"""Start-up of a flow that a command, or the public package, calls in its own process."""

from __future__ import annotations

from collections.abc import Callable

from flows.runtime.environment import state_folder, writable_state_folder
from flows.servers import temporary_server
from models.base.disk import require_space


def prepare_flow() -> Callable[[], None]:
    """Check the disk, make the state folder, and start a Prefect server unless another is chosen or runs.

    Call it before Prefect is imported. Returns a function that waits until the server answers and drops routine log
    records from the terminal. Import the flow before you call that function: server and imports take seconds each.

    Raises:
        UserError: the disk is full, the state folder is not writable, or the server's address contains a password.
    """
    require_space(state_folder())  # before the folder is made: a refused run leaves no files
    writable_state_folder()
    server_answers = temporary_server.start(state_folder())

    def ready() -> None:
        from flows.runtime import console

        console.quiet(caller_prints_error=True)
        server_answers()

    return ready

"""The command `rewardflow services env`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flows.runtime.command_options import FolderOption, service_folder

if TYPE_CHECKING:
    pass


def env(folder: FolderOption = None) -> None:
    """Print the shell commands that set the environment variables of the services.

    Example: `eval "$(rewardflow services env)"`
    """
    from flows.services import service_set
    from flows.services.place import shell_lines

    print(shell_lines(service_set.environment(service_folder(folder))))

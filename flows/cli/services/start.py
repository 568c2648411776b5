"""The command `rewardflow services start`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flows.runtime import collection
from flows.runtime.command_options import FolderOption, service_folder

if TYPE_CHECKING:
    pass


def start(folder: FolderOption = None) -> None:
    """Start the services that do not run, and print the shell commands that set their environment variables.

    Example: `rewardflow services start`, then `eval "$(rewardflow services env)"`
    """
    from flows.services import service_set
    from flows.services.place import shell_lines

    collection.begin()
    place = service_folder(folder)
    service_set.start(place)
    print(f"\n{shell_lines(place.environment())}\n")
    given = f" --folder {place.folder}" if folder else ""
    print(f'All answer. In a shell: eval "$(rewardflow services env{given})"')

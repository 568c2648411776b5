"""The command `rewardflow services stop`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flows.runtime.command_options import FolderOption, service_folder

if TYPE_CHECKING:
    pass


def stop(folder: FolderOption = None) -> None:
    """Stop the services that run. All their data are kept.

    Example: `rewardflow services stop`
    """
    from flows.services import service_set

    ended = service_set.stop(service_folder(folder))
    print(f"ended: {', '.join(ended)}" if ended else "none was running")

"""The command `rewardflow services upgrade`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flows.runtime.command_options import FolderOption, service_folder

if TYPE_CHECKING:
    pass


def upgrade(folder: FolderOption = None) -> None:
    """Migrate the tables of both databases to the installed versions of MLflow and Prefect. Make a backup first.

    Example: `rewardflow services stop`, `rewardflow backup /backups/before.tar`, `rewardflow services upgrade`
    """
    from flows.services import tables

    tables.upgrade(service_folder(folder))

"""The command `rewardflow init`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

PANEL = "Operations"


def init(
    folder: Annotated[Path, typer.Argument(help="Folder of the project. It is created if it does not exist.")],
) -> None:
    """Create a project outside a clone: a recipe, a reward, the stages of the data, the schedule, git and DVC.

    Nothing is trained. If a file of the project exists already, nothing is written.

    Example: `rewardflow init my-project`, then `cd my-project` and `rewardflow run first --smoke`
    """
    from flows.new_project import create_project

    files = create_project(folder)
    print("\n".join(f"  {name}" for name in files))
    print(f"\n{folder} is a project. Next:\n\n  cd {folder}\n  rewardflow run first --smoke")

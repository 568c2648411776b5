"""The command `rewardflow schema`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from flows.runtime.environment import state_folder

PANEL = "Methods"


def schema(
    write: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write the schema to this file. Default: it is printed.")
    ] = None,
) -> None:
    """Print the JSON Schema of recipes, with which editors complete and check recipe files.

    The schema has all sections and parts with their keys, types, limits, defaults and descriptions.

    Example: `rewardflow schema --write recipe.schema.json`
    """
    import json

    from models.base.atomic_write import write_file
    from models.recipes.schema_file import current_schema

    text = json.dumps(current_schema(state_folder()), indent=1)
    if write is None:
        print(text)
        return
    write_file(write, f"{text}\n")
    print(f"{write}: the schema of recipes")

"""The command `rewardflow data inspect`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from flows.runtime.command_options import SetOption, path_overrides


def inspect(
    paths: Annotated[
        list[Path], typer.Argument(help="Files or folders: .jsonl, .json, .csv, .parquet; or hf://OWNER/NAME.")
    ],
    tested: Annotated[
        list[Path] | None, typer.Option("--test", help="File held out from training. Repeatable.")
    ] = None,
    recipe: Annotated[
        str,
        typer.Option("--recipe", "-r", help="Recipe whose `data:` section is used. Default: the format is recognised."),
    ] = "",
    form: Annotated[str, typer.Option("--format", help="Format of the rows. Default: it is recognised.")] = "",
    columns: Annotated[
        list[str] | None,
        typer.Option("--column", metavar="FIELD=COLUMN", help="Column that a field is read from. Repeatable."),
    ] = None,
    overrides: SetOption = None,
) -> None:
    """Show how files would be read: shape, splits by file, rows, unused columns, the first row.

    The rows of a data set of the hub, hf://OWNER/NAME@REVISION:CONFIG/SPLIT, are stored in the state folder.

    Example: `rewardflow data inspect data/raw/arithmetic`
    """
    from models.base.errors import UserError
    from models.datasets.inspection import inspect as inspected
    from models.datasets.params import checked
    from models.datasets.settings import DataSettings
    from models.recipes.load import load_recipe
    from tasks.data.hub_data import fetch_hub_data

    if recipe:
        if form or columns:
            raise UserError("--recipe: its data section has format and columns; change them with --set data.format=...")
        named = path_overrides("data", paths, tested)
        settings = load_recipe(recipe, [*named, *(overrides or [])]).data
    elif overrides:
        raise UserError("--set: changes a recipe's keys; name the recipe with --recipe, or use --format and --column")
    else:
        mapping = dict(_mapped(text) for text in columns or [])
        given = {"name": "inspected", "path": paths, "test_path": tested, "columns": mapping}
        settings = checked(DataSettings, {**given, "format": form or "auto"}, "data")
    print(inspected(fetch_hub_data(settings)[0]).text())


def _mapped(text: str) -> tuple[str, str]:
    """Split FIELD=COLUMN into the field and its column."""
    from models.base.errors import UserError

    name, mark, column = text.partition("=")
    if not mark:
        raise UserError(f"--column: '{text}' is not FIELD=COLUMN, such as prompt=question")
    return name, column

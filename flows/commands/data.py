"""Commands for a user's own data: inspect files, and add them as a version that a commit pins."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Annotated

import typer

from flows.commands.options import SetOption

app = typer.Typer(no_args_is_help=True, help="Inspect your own data, and bring them in as a pinned version.")


@app.command()
def inspect(
    paths: Annotated[list[Path], typer.Argument(help="Files or folders: .jsonl, .json, .csv, .parquet.")],
    tested: Annotated[
        list[Path] | None, typer.Option("--test", help="Files held out from training; may be given several times.")
    ] = None,
    recipe: Annotated[
        str, typer.Option("--recipe", "-r", help="Recipe whose `data:` section is used; the shape is recognised else.")
    ] = "",
    form: Annotated[str, typer.Option("--format", help="Shape of the rows; recognised, if left out.")] = "",
    columns: Annotated[
        list[str] | None, typer.Option("--column", metavar="FIELD=COLUMN", help="Column of a field; several times.")
    ] = None,
    overrides: SetOption = None,
) -> None:
    """Show how files would be read: shape, splits by file, rows, unused columns, the first row.

    Example: `rewardflow data inspect data/raw/arithmetic`
    """
    from models.base.errors import UserError
    from models.datasets.inspection import inspect as inspected
    from models.datasets.inspection import recognised_format
    from models.datasets.params import checked
    from models.datasets.settings import DataSettings
    from models.recipes.load import load_recipe

    if recipe:
        if form or columns:
            raise UserError("--recipe: its data section has format and columns; change them with --set data.format=...")
        named = [f"data.path={_listed(paths)}", *([f"data.test_path={_listed(tested)}"] if tested else [])]
        settings = load_recipe(recipe, [*named, *(overrides or [])]).data
    elif overrides:
        raise UserError("--set: changes a recipe's keys; name the recipe with --recipe, or use --format and --column")
    else:
        mapping = dict(_mapped(text) for text in columns or [])
        given = {"name": "inspected", "path": paths, "test_path": tested, "columns": mapping}
        shape = form or recognised_format(paths, mapping)
        settings = checked(DataSettings, {**given, "format": shape}, "data")
    print(inspected(settings).text())


@app.command()
def add(
    paths: Annotated[list[Path], typer.Argument(help="Files or folders: .jsonl, .json, .csv, .parquet.")],
    recipe: Annotated[str, typer.Option("--recipe", "-r", help="Recipe whose `data:` section says how to read them.")],
    name: Annotated[str, typer.Option("--name", help="Name of the data set; the recipe's, if left out.")] = "",
    tested: Annotated[
        list[Path] | None, typer.Option("--test", help="Files held out from training; may be given several times.")
    ] = None,
    held_out: Annotated[
        str,
        typer.Option(help="Name of a held-out set of `gate.held_out`: the files become it, and are trained on never."),
    ] = "",
    overrides: SetOption = None,
) -> None:
    """Copy files in, prepare them, commit the files that pin them, and push the data to the DVC remote.

    A run on these data can then be reproduced and promoted: the commit on its page pins the rows and the raw files.

    Example: `rewardflow data add /data/gsm8k_train.jsonl --test /data/gsm8k_test.jsonl --recipe gsm8k`
    """
    from models.base.errors import UserError
    from models.datasets.schema import read_manifest
    from models.recipes.load import load_recipe
    from tasks.data.add_data import add as add_files

    if held_out and (name or tested):
        raise UserError("--held-out: the set has this name and is held out whole; leave --name and --test out")
    section = "data" if not held_out else f"gate.held_out.{held_out}"
    chosen = [f"{section}.path={_listed(paths)}", *([f"data.test_path={_listed(tested)}"] if tested else [])]
    chosen += [f"data.name={name}"] if name else []
    read = load_recipe(recipe, [*chosen, *(overrides or [])])
    settings = read.gate.held_out[held_out].data(held_out) if held_out else read.data
    version, kept = add_files(settings, Path.cwd())
    rows = sum(read_manifest(version.folder)["rows"].values())
    print(f"{version.name}: {rows:,} rows, version {version.digest[:8]}, commit {version.revision[:8]}, pushed")
    said = [f"--set {section}.path={kept.path[0]}"] if kept.path else []
    said += [f"--set data.test_path={kept.test_path[0]}"] if kept.test_path else []
    said += [f"--set data.name={version.name}"] if name else []
    said += [f"--set {shlex.quote(text)}" for text in overrides or []]
    print(f"rewardflow run {recipe} {' '.join(said)}")


def _mapped(text: str) -> tuple[str, str]:
    """Split FIELD=COLUMN into the field and its column."""
    from models.base.errors import UserError

    name, mark, column = text.partition("=")
    if not mark:
        raise UserError(f"--column: '{text}' is not FIELD=COLUMN, such as prompt=question")
    return name, column


def _listed(paths: list[Path]) -> str:
    return json.dumps([str(path) for path in paths])

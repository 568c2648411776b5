"""The command `rewardflow data add`."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated

import typer

from flows.runtime.command_options import SetOption, path_overrides


def add(
    paths: Annotated[
        list[Path], typer.Argument(help="Files or folders: .jsonl, .json, .csv, .parquet; or hf://OWNER/NAME.")
    ],
    recipe: Annotated[
        str, typer.Option("--recipe", "-r", help="Recipe whose `data:` section defines how the files are read.")
    ],
    name: Annotated[str, typer.Option("--name", help="Name of the data set. Default: the recipe's.")] = "",
    tested: Annotated[
        list[Path] | None, typer.Option("--test", help="File held out from training. Repeatable.")
    ] = None,
    held_out: Annotated[
        str,
        typer.Option(help="Add the files as this held-out set of `gate.held_out`. They are never trained on."),
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
    chosen = path_overrides(section, paths, tested)
    chosen += [f"data.name={name}"] if name else []
    loaded_recipe = load_recipe(recipe, [*chosen, *(overrides or [])])
    settings = loaded_recipe.gate.held_out[held_out].data(held_out) if held_out else loaded_recipe.data
    version, kept_settings = add_files(settings, Path.cwd())
    rows = sum(read_manifest(version.folder)["rows"].values())
    print(f"{version.name}: {rows:,} rows, version {version.digest[:8]}, commit {version.revision[:8]}, pushed")
    arguments = [f"--set {section}.path={kept_settings.path[0]}"] if kept_settings.path else []
    arguments += [f"--set data.test_path={kept_settings.test_path[0]}"] if kept_settings.test_path else []
    arguments += [f"--set data.name={version.name}"] if name else []
    arguments += [f"--set {shlex.quote(text)}" for text in overrides or []]
    print(f"rewardflow run {recipe} {' '.join(arguments)}")

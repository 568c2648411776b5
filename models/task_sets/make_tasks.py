"""Make a task set's data from its settings and a seed: problems, demonstrations and, for some sets, preferences.

    python -m models.task_sets.make_tasks params.yaml calculator data/raw/calculator

reads the section `calculator` and writes one Parquet file per kind, with the split of every row in a column. The rows
are drawn by `models/task_sets/calculator.py`; `models.datasets.prepare` reads the files.
"""

from __future__ import annotations

import argparse
import importlib
import sys
from pathlib import Path

import pyarrow as pa

from models.base.atomic_write import replace_folder
from models.base.errors import UserError
from models.base.images import IMAGES, content_of, images_in, write_images
from models.datasets.built_in import TASK_SETS
from models.datasets.params import checked, read_section, run_stage
from models.datasets.schema import arrow_schema, write_rows
from models.task_sets.drawing import TaskSettings, make_rows

_LATER = ("id", "prompt_id")
"""Columns that the preparation adds."""


def settings_type(name: str) -> type[TaskSettings]:
    """Return the settings class of a task set's section of params.yaml.

    Raises:
        UserError: no task set has this name.
    """
    if name not in TASK_SETS:
        raise UserError(f"no task set is called {name!r}; known: {', '.join(TASK_SETS)}")
    made: type[TaskSettings] = importlib.import_module(f"models.task_sets.{name}").SETTINGS
    return made


def write(settings: TaskSettings, folder: Path) -> None:
    """Write `problems.parquet` and, if the set has any, `demonstrations.parquet` and `preferences.parquet`, with a
    column `split`; and `images.parquet`, if they refer to images."""
    with replace_folder(folder) as partial:
        names: set[str] = set()
        for kind, splits in make_rows(settings).items():
            texts = (
                str(row.get(key, "")) for part in splits.values() for row in part for key in ("prompt", "completion")
            )
            names.update(name for text in texts for name in images_in(text))
            rows = [{"split": split, **row} for split, part in splits.items() for row in part]
            fields = [field for field in arrow_schema(kind) if field.name not in _LATER]
            if rows:
                schema = pa.schema([pa.field("split", pa.string(), False), *fields])
                write_rows(partial / f"{kind}.parquet", rows, schema)
        if names:
            write_images(partial / IMAGES, map(content_of, names))


def main(arguments: list[str] | None = None) -> int:
    """Run a stage `make_tasks@NAME` of dvc.yaml."""
    parser = argparse.ArgumentParser(prog="python -m models.task_sets.make_tasks", description=__doc__)
    parser.add_argument("params", type=Path, help="YAML file with a section of the set's name")
    parser.add_argument("name", help="of the set")
    parser.add_argument("folder", type=Path, help="folder to write")
    given = parser.parse_args(arguments)
    settings = checked(
        settings_type(given.name), read_section(given.params, given.name), f"{given.params}: {given.name}"
    )
    write(settings, given.folder)
    return 0


if __name__ == "__main__":
    sys.exit(run_stage(main))

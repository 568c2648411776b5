"""Make the documents that a task set's questions are about, one document per line of JSON.

    python -m models.task_sets.make_documents params.yaml lookup recipes/documents/lookup.jsonl

Recipes name the file (tool `search`), so it is kept in git next to them and exists before any data are made.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Protocol, runtime_checkable

from models.agents.play.documents import as_line
from models.base.atomic_write import write_file
from models.base.errors import UserError
from models.datasets.params import checked, read_section, run_stage
from models.task_sets.make_tasks import settings_type


@runtime_checkable
class Documented(Protocol):
    """Settings of a task set whose questions are about documents."""

    def documents(self) -> Iterable[str]:
        """Return the documents, in order."""
        ...


def main(arguments: list[str] | None = None) -> int:
    """Run a stage `make_documents@NAME` of dvc.yaml."""
    parser = argparse.ArgumentParser(prog="python -m models.task_sets.make_documents", description=__doc__)
    parser.add_argument("params", type=Path, help="YAML file with a section of the set's name")
    parser.add_argument("name", help="of the task set")
    parser.add_argument("file", type=Path, help="file to write")
    given = parser.parse_args(arguments)
    section = read_section(given.params, given.name)
    settings = checked(settings_type(given.name), section, f"{given.params}: {given.name}")
    if not isinstance(settings, Documented):
        raise UserError(f"{given.params}: {given.name}: this task set has no documents")
    write_file(given.file, "".join(f"{as_line(text)}\n" for text in settings.documents()))
    return 0


if __name__ == "__main__":
    sys.exit(run_stage(main))

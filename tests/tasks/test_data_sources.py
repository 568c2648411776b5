"""Data are prepared anew where the code that reads them changes: it must be there to be hashed."""

from pathlib import Path
from typing import Any

import yaml

import models
from tasks.data.data_sources import READING_CODE


def test_every_module_that_reads_a_users_files_is_there() -> None:
    folder = Path(models.__path__[0]) / "datasets"
    assert [module for module in READING_CODE if not (folder / f"{module}.py").is_file()] == []


def test_the_stages_of_the_built_in_data_name_only_files_that_are_there() -> None:
    stages = yaml.safe_load((Path(models.__path__[0]).parent / "dvc.yaml").read_text())["stages"]
    code = {name for stage in stages.values() for name in _dependencies(stage) if name.startswith("models/")}
    root = Path(models.__path__[0]).parent
    assert len(code) > 5 and [name for name in sorted(code) if not (root / name).is_file()] == []


def _dependencies(stage: dict[str, Any]) -> list[str]:
    """Of a stage, or of all that a stage with `foreach` stands for."""
    if "foreach" not in stage:
        return list(stage["deps"])
    return [name.replace("${item}", item) for item in stage["foreach"] for name in stage["do"]["deps"]]

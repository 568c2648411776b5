"""The DVC stage that prepares a user's files.

    data/sources/NAME/dvc.yaml      the raw paths as dependencies
    data/sources/NAME/params.yaml   the recipe's `data:` section as parameters
    data/prepared/NAME              its output

New raw bytes, other settings or another version of the reading code each make the stage run again, and nothing else
does. Hub data (tasks/data/hub_data.py) are not a dependency: the parameters name their commit, whose rows never change.
git tracks these small files, and pins the prepared rows once they are committed. Raw files that `rewardflow data add`
copied in (tasks/data/add_data.py) are stored in data/raw/NAME, and data/raw/NAME.dvc pins them.
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import Any

import yaml

import models
from models.base.atomic_write import write_file
from models.base.errors import UserError
from models.datasets.built_in import BUILT_IN, TASK_SETS
from models.datasets.data_files import files_of
from models.datasets.hub_reference import is_hub_reference
from models.datasets.settings import DataSettings
from tasks.data.dvc_command import Report, run_dvc

STAGE = "prepare"
"""Name of the stage of a user's files, and of the stage of the built-in data set arithmetic."""
RAW = "data/raw"
"""Folder of raw data: the output of the built-in stages, and users' files that were added."""


def stage_of(name: str) -> str:
    """Return the name of the stage that prepares a data set."""
    return f"prepare_tasks@{name}" if name in TASK_SETS else STAGE


def prepare_source(settings: DataSettings, root: Path, report: Report, lock: int) -> None:
    """Write the stage of a user's files and run it; if the stage fails, restore the previous files."""
    if settings.name in BUILT_IN:
        raise UserError(f"data.name: '{settings.name}' is the name of a built-in data set; give yours another")
    files_of(settings.path or ())  # a missing file is reported before anything is written
    files_of(settings.test_path or (), "data.test_path")
    folder = root / source_folder(settings.name)
    paths = (folder / "dvc.yaml", folder / "params.yaml")
    before = {path: path.read_bytes() if path.is_file() else None for path in paths}
    try:
        for path, content in zip(before, source_files(settings, root), strict=True):
            write_file(path, content)
        run_dvc(root, ["repro", f"{source_folder(settings.name)}/dvc.yaml"], report, lock)
    except BaseException:
        for path, old in before.items():
            if old is None:
                path.unlink(missing_ok=True)
            else:
                write_file(path, old)
        if folder.is_dir() and not any(folder.iterdir()):
            folder.rmdir()
        raise


def source_files(settings: DataSettings, root: Path) -> tuple[str, str]:
    """Return the text of `dvc.yaml` and `params.yaml` for a user's files; paths in the repository become relative."""
    data: dict[str, Any] = settings.model_dump(mode="json", exclude_defaults=True, exclude={"template"})
    data["name"] = settings.name
    raw: list[str] = []
    for key, paths in (("path", settings.path), ("test_path", settings.test_path)):
        if paths:
            data[key] = [str(path) if is_hub_reference(path) else _from_root(Path(path), root) for path in paths]
            raw += [path for path in data[key] if not is_hub_reference(path)]
    params = f"{source_folder(settings.name)}/params.yaml"
    stage = {
        "wdir": "../../..",
        "cmd": f"python -m models.datasets.prepare {params} data {prepared_folder(settings.name)}",
        # ${ would be a DVC template
        "deps": [path.replace("${", "\\${") for path in dict.fromkeys([*filter(None, map(added_folder, raw)), *raw])],
        "params": [{params: ["code", "data"]}],
        "outs": [prepared_folder(settings.name)],
    }
    return (
        yaml.safe_dump({"stages": {STAGE: stage}}, sort_keys=False, allow_unicode=True),
        yaml.safe_dump({"code": _reading_code(), "data": data}, sort_keys=False, allow_unicode=True),
    )


def _from_root(path: Path, root: Path) -> str:
    absolute = Path(os.path.abspath(path))
    return absolute.relative_to(root).as_posix() if absolute.is_relative_to(root) else absolute.as_posix()


def _reading_code() -> str:
    """Return the digest of models/datasets, as a parameter: a DVC stage cannot depend on files of a package."""
    total = hashlib.sha256()
    for module in sorted((Path(models.__path__[0]) / "datasets").glob("*.py")):
        total.update(module.name.encode() + b"\0" + module.read_bytes() + b"\0")
    return total.hexdigest()


def prepared_folder(name: str) -> str:
    """Return the folder of the prepared rows of a data set, relative to the repository."""
    return f"data/prepared/{name}"


def source_folder(name: str) -> str:
    """Return the folder of the stage of a user's data set, relative to the repository."""
    return f"data/sources/{name}"


def added_folder(path: str) -> str:
    """Return the folder of added raw files that contains a path or is that path, "" if there is none."""
    parts = Path(path).parts
    return f"{RAW}/{parts[2]}" if len(parts) > 2 and parts[:2] == tuple(RAW.split("/")) else ""

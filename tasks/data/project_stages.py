"""The DVC stages of the built-in data sets in a project that is not a clone.

In a clone, the stages of dvc.yaml depend on the folders of the code that makes the data. A project has no such folders:
its stages depend on the digest of that code, which is in data/code.yaml and is brought up to date before they run.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from models.base.atomic_write import write_file
from models.base.package_files import PROJECT, data_code_digest

CODE_FILE = "data/code.yaml"
_HEAD = (
    "# The stages of the built-in data sets, written by `rewardflow init`. `rewardflow run` runs those that it needs.\n"
)
_CODE_HEAD = "# Digest of the installed code that makes the built-in data sets; `rewardflow` keeps it up to date.\n"


def project_stages() -> str:
    """Return the text of a project's dvc.yaml: the stages of the package, with the code's digest as a parameter."""
    stages: dict[str, Any] = yaml.safe_load((PROJECT / "dvc.yaml").read_text(encoding="utf-8"))["stages"]
    for entry in stages.values():
        stage = entry.get("do", entry)
        kept = [path for path in stage.pop("deps", []) if not path.startswith("models/")]
        stage |= {"deps": kept} if kept else {}
        stage["params"] = [*stage.get("params", []), {CODE_FILE: ["digest"]}]
    return _HEAD + yaml.safe_dump({"stages": stages}, sort_keys=False, width=120)


def code_digest_text() -> str:
    """Return the text of data/code.yaml for the running code."""
    return _CODE_HEAD + yaml.safe_dump({"digest": data_code_digest()})


def update_code_digest(root: Path) -> None:
    """Write the digest of the running code to the project `root`, if it has one and it differs; a clone has none."""
    file = root / CODE_FILE
    if file.is_file() and file.read_text(encoding="utf-8") != code_digest_text():
        write_file(file, code_digest_text())

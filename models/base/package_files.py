"""Files that the package brings along and that are not Python modules: recipes, suites of expectations, stages of data.

In a clone they are in the clone itself. A wheel carries copies of them in rewardflow/project/
(`rewardflow.build_files`), so that `rewardflow` works in a folder that is not a clone.
"""

from __future__ import annotations

import hashlib
from functools import lru_cache
from pathlib import Path

CODE = Path(__file__).resolve().parents[2]
"""Folder of the packages: the root of a clone, or site-packages."""
COPIES = CODE / "rewardflow" / "project"
"""Folder of the copies in an installed wheel."""
INSTALLED = COPIES.is_dir()
"""Whether the running code was installed as a wheel."""
PROJECT = COPIES if INSTALLED else CODE
"""Folder of recipes/, data/expectations/, params.yaml, dvc.yaml, prefect.yaml and deploy/systemd/."""
TEMPLATE = CODE / "rewardflow" / "template"
"""Files of a new project (`rewardflow init`)."""
DOCUMENTS = "models/agents/play/documents.py"
"""Module that the generated documents depend on, in addition to the folders of data and task sets."""


@lru_cache(maxsize=1)
def data_code_digest() -> str:
    """Return the SHA-256 of the modules that make and read data, which stages of data outside a clone depend on."""
    total = hashlib.sha256()
    modules = [*CODE.glob("models/datasets/*.py"), *CODE.glob("models/task_sets/*.py"), CODE / DOCUMENTS]
    for module in sorted(modules):
        total.update(module.relative_to(CODE).as_posix().encode() + b"\0" + module.read_bytes() + b"\0")
    return total.hexdigest()

"""Build step of the wheel: copies recipes, stages of data and expectations of the clone into rewardflow/project/."""

from __future__ import annotations

import shutil
from pathlib import Path

from setuptools.command.build_py import build_py

ROOT = Path(__file__).resolve().parents[1]
FOLDERS = ("recipes", "data/expectations", "deploy/systemd")
FILES = ("params.yaml", "dvc.yaml", "prefect.yaml")


class BuildWithProjectFiles(build_py):
    """setuptools' build of the modules, followed by the copies. An editable installation reads the clone itself."""

    def run(self) -> None:
        """Build the modules and copy the files that git tracks in the folders."""
        super().run()
        if self.editable_mode:
            return
        target = Path(self.build_lib) / "rewardflow" / "project"
        shutil.rmtree(target, ignore_errors=True)
        for folder in FOLDERS:
            ignored = shutil.ignore_patterns("__pycache__", ".*")
            shutil.copytree(ROOT / folder, target / folder, ignore=ignored)
        for file in FILES:
            shutil.copyfile(ROOT / file, target / file)

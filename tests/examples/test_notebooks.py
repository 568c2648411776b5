"""The notebooks, executed in a new project, cell by cell."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from flows.new_project import create_project
from models.base.package_files import CODE

NOTEBOOKS = sorted((CODE / "examples").glob("*.ipynb"))
PROGRAM = """
import sys, nbformat
from nbclient import NotebookClient

notebook = nbformat.read(sys.argv[1], as_version=4)
nbformat.validate(notebook)
NotebookClient(notebook, timeout=400, kernel_name="python3").execute()
nbformat.write(notebook, "executed.ipynb")
"""


def test_there_are_three_notebooks() -> None:
    assert [file.stem for file in NOTEBOOKS] == ["first_training", "review_and_promote", "reward_of_your_own"]


@pytest.mark.thorough
@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda file: file.stem)
def test_every_cell_of_a_notebook_runs_in_a_new_project(notebook: Path, tmp_path: Path) -> None:
    pytest.importorskip("nbclient")
    create_project(tmp_path / "demo")
    environment = {key: value for key, value in os.environ.items() if key != "REWARDFLOW_HOME"}
    path = os.pathsep.join([str(Path(sys.executable).parent), environment["PATH"]])
    finished = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(notebook)],
        cwd=tmp_path / "demo",
        env=environment | {"PYTHONPATH": str(CODE), "PATH": path, "IPYTHONDIR": str(tmp_path / "ipython")},
        capture_output=True,
        text=True,
        timeout=550,
    )
    assert finished.returncode == 0, finished.stderr[-3000:]

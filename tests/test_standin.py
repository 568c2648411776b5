"""The tests of the learning core, run again with every model on the stand-in for a GPU.

Code that uses the wrong device, or works on a processor only, fails here and not later on a machine with a GPU. All
tests of a folder run, including rotating ones: a failure in a later turn would be blamed on a later commit.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch

ROOT = Path(__file__).resolve().parents[1]
TESTS = ROOT / "tests" / "models"
WITHOUT_MODELS = {"answers", "datasets", "parts/labels", "parts/shared", "recipes", "sandbox", "task_sets", "text"}
"""Folders whose tests put nothing on a device."""
FOLDERS = {place.parent.relative_to(TESTS) for place in TESTS.rglob("test_*.py")}
OUTERMOST = {folder for folder in FOLDERS if not FOLDERS & set(folder.parents)}
PLACES = sorted({str(folder) for folder in OUTERMOST} - WITHOUT_MODELS)
"""Folders with tests, except those inside another folder with tests."""


@pytest.mark.thorough
@pytest.mark.skipif(shutil.which("c++") is None, reason="no C++ compiler, which builds the stand-in")
@pytest.mark.skipif(torch.version.cuda is not None, reason="torch is built for CUDA: --device cuda is the test there")
@pytest.mark.parametrize("place", PLACES)
def test_what_is_right_on_a_processor_is_right_on_another_device(place: str) -> None:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST")}
    path = os.pathsep.join([str(Path(sys.executable).parent), environment["PATH"]])  # ninja may be in the first folder
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "--device", "standin", "-n", "0", "-q", "-p", "no:cacheprovider",
         str(TESTS / place)],
        cwd=ROOT, env=environment | {"PATH": path}, capture_output=True, text=True, timeout=900, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]

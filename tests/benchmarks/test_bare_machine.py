"""Benchmarks for a machine with little more than torch: importing them loads no package above `models/`."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.thorough
@pytest.mark.parametrize("module", ["gpu.sweep", "curves.main_curve"])
def test_it_imports_nothing_above_the_models(module: str) -> None:
    code = (
        f"import sys, benchmarks.{module}\n"
        "names = ('prefect', 'mlflow', 'dvc', 'great_expectations', 'vllm', 'tasks', 'flows', 'trl', 'greenlet')\n"
        "print([name for name in names if name in sys.modules])"
    )
    asked = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert asked.stdout.split("\n")[-2] == "[]"

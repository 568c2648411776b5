"""Tests of the test session: it leaves no state in the checkout, and every process has a state folder of its own."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from running import ROOT, shell

from flows.runtime.environment import state_folder


def test_flows_that_are_imported_by_tests_keep_their_state_out_of_the_checkout() -> None:
    import flows.train  # noqa: F401 - sets Prefect's folder

    for folder in (state_folder(), *(Path(value) for name, value in os.environ.items() if name == "PREFECT_HOME")):
        assert folder.is_dir() and not folder.is_relative_to(ROOT)


def test_every_process_of_a_test_run_has_a_state_folder_of_its_own_which_goes_with_it() -> None:
    code = "import conftest; print(conftest.STATE.name)"
    folder = subprocess.check_output([sys.executable, "-c", code], cwd=ROOT / "tests", text=True, env=environment())
    assert Path(folder.strip()) != state_folder() and not Path(folder.strip()).exists()


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(ROOT)}


LOOK = """
import os, sys, warnings
def seen(event, arguments):
    if event == "import" and arguments[0] == "prefect":
        print("first", os.environ.get("PREFECT_HOME"), os.environ.get("PREFECT_SERVER_ANALYTICS_ENABLED"))
        raise SystemExit
sys.addaudithook(seen)
"""


@pytest.mark.rotating(of=6)
@pytest.mark.parametrize(
    "module", ["train", "compare", "refresh_data", "evaluate_champion", "runtime.console", "schedule.schedule"]
)
def test_where_prefect_lives_is_settled_before_whatever_is_imported_first_imports_prefect(module: str, tmp_path: Path):
    """The package `flows` sets Prefect's folder, so that its modules have nothing to set before their own imports."""
    code = f"{LOOK}\nimport flows.{module}\nimport prefect"
    said = subprocess.check_output(
        [sys.executable, "-c", code], cwd=tmp_path, text=True, env={**shell(), "PYTHONPATH": str(ROOT)}
    )
    assert said.splitlines()[0] == f"first {tmp_path}/.rewardflow/prefect false"
    assert list(tmp_path.iterdir()) == []


def test_no_import_of_the_house_stands_below_code() -> None:
    needed = [file for layer in ("flows", "tasks", "models") for file in (ROOT / layer).rglob("*.py")
              if "E402" in file.read_text()]  # fmt: skip
    assert needed == []

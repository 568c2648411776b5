"""What the tests themselves must not do: leave state in the checkout, or see what another process left."""

import os
import subprocess
import sys
from pathlib import Path

from running import ROOT

from flows.environment import state_folder


def test_flows_that_are_imported_by_tests_keep_their_state_out_of_the_checkout() -> None:
    import flows.train  # noqa: F401 - which chooses where Prefect lives

    for folder in (state_folder(), *(Path(value) for name, value in os.environ.items() if name == "PREFECT_HOME")):
        assert folder.is_dir() and not folder.is_relative_to(ROOT)


def test_every_process_of_a_test_run_has_a_state_folder_of_its_own_which_goes_with_it() -> None:
    code = "import conftest; print(conftest.STATE.name)"
    folder = subprocess.check_output([sys.executable, "-c", code], cwd=ROOT / "tests", text=True, env=environment())
    assert Path(folder.strip()) != state_folder() and not Path(folder.strip()).exists()


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(ROOT)}

"""Setup of all tests: a quiet environment, tiers of tests, and the real data sets if they are available."""

import gc
import os
import re
import shutil
import signal
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest
from xdist.scheduler import LoadScopeScheduling

import models  # noqa: F401 - sets how OpenMP's threads wait, before anything loads torch
from tests.support.rotation import rotate, turn

STATE = tempfile.TemporaryDirectory(prefix="rewardflow-tests-")  # one per process; flows write into it when imported
gc.disable()  # off while tests are imported; see pytest_collection_finish
os.environ.update(
    {
        "REWARDFLOW_HOME": STATE.name,
        "HF_HUB_OFFLINE": "1",
        "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
        "PREFECT_SERVER_ALLOW_EPHEMERAL_MODE": "false",  # its server would outlive the tests
        "PREFECT_SERVER_EPHEMERAL_STARTUP_TIMEOUT_SECONDS": "120",
        "MLFLOW_DISABLE_TELEMETRY": "true",
        "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",
        "DVC_NO_ANALYTICS": "1",
        "GX_ANALYTICS_ENABLED": "false",
        "DO_NOT_TRACK": "1",
        "OMP_NUM_THREADS": "1",  # threads slow such small models down, most of all when other work runs
    }
)

pytest_plugins = ["tests.support.fault_table"]
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # a shell ignores it in background jobs
    signal.signal(signal.SIGINT, signal.default_int_handler)
HANDLERS = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
"""Signal handlers at the start of this process."""
ROOT = Path(__file__).resolve().parents[1]
CORE = ("models/base", "models/datasets", "models/evaluation", "models/learner", "models/method",
        "models/parts/advantage", "models/parts/objective", "models/parts/reference", "models/parts/rewards",
        "models/parts/select", "models/recipes", "models/reward_models/critic", "models/text", "models/training",
        "tasks/test_collapsed", "tasks/test_description", "flows/test_command_line")  # fmt: skip
"""Tests that `make quick` runs, except those marked slow or thorough."""
SHARED = re.compile(r"\b(servers|project|first|again|locked): (Pair|Project|Ran|Unchanged|dict)")
"""Pattern of the arguments of tests that share the session's servers and project (tests/flows/conftest.py)."""


@pytest.fixture(autouse=True)
def first_handlers() -> None:
    """Restore the signal handlers that a command in this process replaced: its handlers would end the tests."""
    for number, handler in HANDLERS.items():
        if signal.getsignal(number) is not handler:
            signal.signal(number, handler)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--slice", metavar="K/N", help="Of the thorough tests only every N-th, beginning with the K-th (from 0)."
    )
    parser.addoption(
        "--device",
        choices=("cpu", "cuda", "standin"),
        default="cpu",
        help="Where tests/models put their models, and nothing else runs then: see tests/support/device_here.py (cpu).",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Choose the device before any test is imported. With `--device cpu`, hide all GPUs from the tests."""
    kind = config.getoption("--device")
    if kind == "cpu":
        os.environ["CUDA_VISIBLE_DEVICES"] = ""
        return
    from tests.support import device_here  # it loads torch, so the variables above must be set first

    device_here.choose(kind, ROOT / ".pytest_cache" / "standin")


def pytest_report_header(config: pytest.Config) -> list[str]:
    return [
        f"rotating tests: turn {turn(ROOT)}, the number of commits",
        f"device of models: {config.getoption('--device')}",
    ]


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark the core and the tests of other turns, order the tests, and select the slice of `--slice`.

    In one process, the fast tests come first. In several, the longest groups come first, so that all end together.
    """
    rotate(items, turn(ROOT))
    if config.getoption("--device") != "cpu":
        covered = [item for item in items if is_covered(item)]
        config.hook.pytest_deselected(items=[item for item in items if not is_covered(item)])
        items[:] = covered
    for item in items:
        if item.path.relative_to(ROOT / "tests").as_posix().startswith(CORE) and not is_slow(item):
            item.add_marker(pytest.mark.quick)
    items.sort(key=rank if os.environ.get("PYTEST_XDIST_WORKER") else is_slow)
    if wanted := config.getoption("--slice"):
        first, of = (int(number) for number in wanted.split("/"))
        thorough = [item for item in items if item.get_closest_marker("thorough")]
        left = {item for number, item in enumerate(thorough) if number % of != first}
        config.hook.pytest_deselected(items=list(left))
        items[:] = [item for item in items if item not in left]


def pytest_collection_finish() -> None:
    """Exclude the existing objects from garbage collections: each engine that closes starts a full one."""
    gc.freeze()
    gc.enable()


@dataclass
class Spared:
    """State at the last freeze, which excludes the existing objects from garbage collections."""

    file: str = ""
    """Test file whose tests run."""
    modules: int = 0
    """Number of modules that were loaded."""


SPARED = Spared()


def pytest_runtest_logstart(nodeid: str) -> None:
    """Freeze again before a test file if over 100 modules were loaded since, or if vLLM has unfrozen the objects."""
    file = nodeid.partition("::")[0]
    if file == SPARED.file:
        return
    SPARED.file = file
    if len(sys.modules) > SPARED.modules + 100 or not gc.get_freeze_count():
        gc.collect()
        gc.freeze()
        SPARED.modules = len(sys.modules)


class InGroups(LoadScopeScheduling):
    """Scheduler that gives each process whole groups of tests. (pytest 9.2 does not see pytest-xdist's own groups.)"""

    def _split_scope(self, nodeid: str) -> str:
        return group_of(nodeid)


def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> InGroups:
    return InGroups(config, log)


def group_of(nodeid: str) -> str:
    """Return the group of a test, which one process runs: tests of the session's servers, of vLLM, or of one file."""
    file = nodeid.partition("::")[0]
    if _shares_servers(ROOT / file):
        return "flows"
    return "vllm" if "vllm" in nodeid else file


@cache
def _shares_servers(file: Path) -> bool:
    return SHARED.search(file.read_text()) is not None


def is_covered(item: pytest.Item) -> bool:
    """Return whether a test runs with `--device` other than cpu. Tests of vLLM do not: vLLM chooses its own device."""
    return item.path.is_relative_to(ROOT / "tests" / "models") and "vllm" not in item.nodeid


def is_slow(item: pytest.Item) -> bool:
    """Return whether a test is marked slow or thorough."""
    return any(item.get_closest_marker(name) is not None for name in ("slow", "thorough"))


def rank(item: pytest.Item) -> int:
    """Return the rank of a test: groups are given to several processes in this order."""
    return {"flows": 0, "vllm": 1}.get(group_of(item.nodeid), 2 if is_slow(item) else 3)


@pytest.fixture(scope="session")
def empty_database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return an MLflow database without runs. Tests copy it, because creating its tables takes seconds."""
    from tasks.tracking import store

    home = tmp_path_factory.mktemp("empty")
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("MLFLOW_TRACKING_URI", raising=False)
        store.configure(home)
        store.client().search_experiments()
    return home / "mlflow.db"


@pytest.fixture
def new_store(empty_database: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[Path], Path]:
    """Return a function that gives a folder an embedded store without runs, and configures this store."""
    from tasks.tracking import store

    def make(folder: Path) -> Path:
        monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
        folder.mkdir(parents=True, exist_ok=True)
        shutil.copy(empty_database, folder / "mlflow.db")
        store.configure(folder)
        return folder

    return make


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """Return the folder with the real GSM8K, HH-RLHF and HumanEval files. Skip the test if there is none."""
    folder = Path(os.environ.get("REWARDFLOW_TEST_DATA", ROOT / "../shared/data"))
    if not (folder / "gsm8k_train.jsonl").is_file():
        pytest.skip(f"no real data sets in {folder} (set REWARDFLOW_TEST_DATA to their folder)")
    return folder.resolve()

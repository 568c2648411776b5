"""What every test can use: a quiet environment and the real data sets, where they are at hand."""

import os
from pathlib import Path

import pytest

os.environ.update(
    {
        "HF_HUB_OFFLINE": "1",
        "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
        "PREFECT_SERVER_EPHEMERAL_STARTUP_TIMEOUT_SECONDS": "120",
        "MLFLOW_DISABLE_TELEMETRY": "true",
        "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",
        "DVC_NO_ANALYTICS": "1",
        "GX_ANALYTICS_ENABLED": "false",
        "DO_NOT_TRACK": "1",
        "OMP_NUM_THREADS": "1",  # models this small only lose by threads, and lose much beside other work
    }
)

ROOT = Path(__file__).resolve().parents[1]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The fast tests first; within the two groups the order stays."""
    items.sort(key=lambda item: item.get_closest_marker("slow") is not None)


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """Folder with the real GSM8K, HH-RLHF and HumanEval files; the test is skipped where there is none."""
    folder = Path(os.environ.get("REWARDFLOW_TEST_DATA", ROOT / "../shared/data"))
    if not (folder / "gsm8k_train.jsonl").is_file():
        pytest.skip(f"no real data sets in {folder} (set REWARDFLOW_TEST_DATA to their folder)")
    return folder.resolve()

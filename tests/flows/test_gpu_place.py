"""Tests of the only slot of a host's GPU, on a real Prefect server: it is held while an engine may use its memory."""

import os
import select
import subprocess
import sys
from pathlib import Path
from uuid import uuid4

import pytest
import torch
from running import Pair

from flows.schedule.schedule import create_gpu_limit
from models.engines.engine import EngineSettings
from models.policies.folder import save_model_folder
from tasks.compute.gpu_place import LOCK, limit_name, of_host
from tasks.compute.shared_engine import borrowed_engine, engine_place, shared_engine
from tasks.state import left_leases
from tests.support.tiny_models import tiny_policy, word_tokenizer

ROOT = Path(__file__).resolve().parents[2]
ENGINE = EngineSettings(name="transformers")
LIMITS = {"longest": 64, "end": 1}


@pytest.fixture
def base(tmp_path: Path) -> Path:
    save_model_folder(tiny_policy(torch.float32), word_tokenizer(), tmp_path / "policy")
    return tmp_path / "policy"


@pytest.mark.rotating(of=6)
@pytest.mark.slow
def test_the_place_on_the_gpu_is_held_as_long_as_the_engine_may_be_open(servers: Pair, base: Path) -> None:
    from prefect.settings import PREFECT_API_URL, temporary_settings

    with temporary_settings({PREFECT_API_URL: f"{servers.prefect}/api"}):
        create_gpu_limit()
        with engine_place(), borrowed_engine(base, ENGINE, **LIMITS):
            assert held() == 1
        assert held() == 0
        with shared_engine():
            assert held() == 0  # no engine was requested yet
            for _ in range(2):
                with engine_place(), borrowed_engine(base, ENGINE, **LIMITS):
                    assert held() == 1
                assert held() == 1  # the engine still has its memory
        assert held() == 0


def held() -> int:
    """Return the number of slots of this host that are in use."""
    from prefect.client.orchestration import get_client

    with get_client(sync_client=True) as client:
        return client.read_global_concurrency_limit_by_name(limit_name()).active_slots


HOLD_SLOT = """
import sys
from tasks.compute.gpu_place import gpu_slot
with gpu_slot():
    print("held", flush=True)
    sys.stdin.readline()
"""


@pytest.mark.rotating(of=6)
@pytest.mark.slow
def test_the_slot_of_a_killed_process_is_given_back_by_who_comes_next(servers: Pair, tmp_path: Path) -> None:
    """The slot of a live process is kept, and a half-written file of a killed process does not prevent the release."""
    from prefect.concurrency._sync import release_concurrency_slots_with_lease as release
    from prefect.settings import PREFECT_API_URL, temporary_settings

    address = f"{servers.prefect}/api"
    surroundings = os.environ | {"PREFECT_API_URL": address, "TMPDIR": str(tmp_path)}
    folder = tmp_path / f"rewardflow-leases-{os.getuid()}"
    with temporary_settings({PREFECT_API_URL: address}):
        create_gpu_limit()
        holder = subprocess.Popen(
            [sys.executable, "-c", HOLD_SLOT],
            cwd=ROOT,
            env=surroundings,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        try:
            assert holder.stdout is not None and holder.stdout.readline() == "held\n"
            assert left_leases.give_back(address, folder, release) == 0 and held() == 1
        finally:
            holder.kill()
            holder.wait()
        (folder / "half.json").write_text('{"lease": "')
        assert held() == 1
        assert left_leases.give_back("http://127.0.0.1:1/api", folder, release) == 0 and held() == 1
        assert left_leases.give_back(address, folder, release) == 1 and held() == 0
        assert not list(folder.iterdir())


def test_a_folder_of_leases_that_another_could_write_to_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    folder = left_leases.folder_of_user()
    assert folder is not None and folder.stat().st_mode & 0o777 == 0o700
    folder.chmod(0o777)
    assert left_leases.folder_of_user() is None
    folder.rmdir()
    (tmp_path / "elsewhere").mkdir(mode=0o700)
    folder.symlink_to(tmp_path / "elsewhere")
    assert left_leases.folder_of_user() is None
    with left_leases.recorded_lease(uuid4(), "here", None):
        assert left_leases.give_back("here", None, lambda lease: None) == 0


HOLD = """
import sys
from pathlib import Path
from tasks.compute.gpu_place import of_host
with of_host(Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.readline()
"""


def test_the_lock_of_a_host_holds_between_processes_and_is_free_when_its_holder_is_killed(tmp_path: Path) -> None:
    """The file is read-only: a user without permission to write it can lock it too."""
    (tmp_path / LOCK).touch(mode=0o444)
    command = [sys.executable, "-c", HOLD, str(tmp_path)]
    first, second = (
        subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for _ in range(2)
    )
    try:
        assert first.stdout is not None and second.stdout is not None
        (said,) = select.select([first.stdout, second.stdout], [], [], 60)[0]
        holder, waiting = (first, second) if said is first.stdout else (second, first)
        assert waiting.stdout is not None and not select.select([waiting.stdout], [], [], 0.5)[0]
        holder.kill()
        assert waiting.stdout.readline() == "held\n"
        with pytest.raises(OSError, match="symbolic links"):
            (tmp_path / "other").mkdir()
            (tmp_path / "other" / LOCK).symlink_to(tmp_path / "target")
            with of_host(tmp_path / "other"):
                pass
        assert not (tmp_path / "target").exists()
    finally:
        for process in (first, second):
            process.kill()
            process.wait()

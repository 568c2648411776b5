"""A full disk stops the program at once with one line: in database, journal, result, caches, checkpoint and flow.

The tests use real small file systems. They are skipped where none can be mounted.
"""

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from small_steps import context

from flows.command_line import ending
from models.base.disk import LEAST_FREE, is_full, no_space, out_of_space, require_space
from models.base.errors import UserError
from models.learner import precision
from models.learner.reference_cache import cached_reference_log_probs
from models.policies.checkpoint import newest_checkpoint, state_of, write_checkpoint
from models.text.token_cache import CachedCodec
from models.text.tokenizer import TokenizerSettings, train_tokenizer
from tasks.runner.step import StepOutput, run_step, step_folder
from tasks.tracking import journal, records, runs, store
from tasks.tracking.metrics import MetricLog
from tests.support.tiny_models import SEQUENCES, tiny_policy

ROOT = Path(__file__).resolve().parents[3]


def mounted(folder: Path, size: str) -> Path:
    folder.mkdir()
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", folder], capture_output=True)
    if done.returncode:
        pytest.skip(f"no file system can be mounted here: {done.stderr.decode().strip()}")
    return folder


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """Mount a file system of 4 MiB, and return its folder."""
    folder = mounted(tmp_path / "small", "4m")
    yield folder
    subprocess.run(["umount", "-l", folder], check=True)


def fill(folder: Path) -> None:
    """Fill the file system, until no byte is free."""
    with (folder / "filler").open("wb", buffering=0) as file:
        for size in (2**20, 2**12, 1):
            try:
                while file.write(b"0" * size):
                    pass
            except OSError:
                continue
    assert is_full(folder)


def refused_at_once(call: Callable[[], object], names: Path) -> None:
    """Check that `call` fails without waiting, with one line that names the place."""
    began = time.monotonic()
    with pytest.raises(UserError, match="no space left") as caught:
        call()
    assert str(names) in str(caught.value) and "\n" not in str(caught.value)
    assert time.monotonic() - began < store.PATIENCE / 10


# ---------------------------------------- the database


@pytest.fixture
def full_store(small_disk: Path, empty_database: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Open a run in an embedded store whose disk is full, and return its id."""
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    shutil.copy(empty_database, small_disk / "mlflow.db")
    store.configure(small_disk)
    run_id = runs.open_flow_run("full", "full")
    fill(small_disk)
    yield run_id


LONG = "long " * 1500


def test_a_full_database_is_no_server_that_is_away(full_store: str, small_disk: Path) -> None:
    for number in range(50):  # until SQLite needs another page
        try:
            runs.set_tags(full_store, {f"tag{number}": LONG})
        except UserError as error:
            assert "no space left" in str(error) and "\n" not in str(error)
            break
    else:
        pytest.fail("it never became full")
    refused_at_once(lambda: runs.set_tags(full_store, {"another": LONG}), small_disk)


def test_metrics_that_a_full_database_refuses_stop_the_training_with_that_reason(
    full_store: str, small_disk: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    def train() -> None:
        with MetricLog(full_store, tmp_path / "journal.jsonl", every_seconds=0.01) as log:
            for step in range(3000):
                log(step, {f"a/long/name/of/a/metric/{number}": step for number in range(20)})
                time.sleep(0.002)

    refused_at_once(train, small_disk)
    assert "Traceback" not in capfd.readouterr().err


def test_an_artifact_that_has_no_room_is_one_line(full_store: str, small_disk: Path, tmp_path: Path) -> None:
    (tmp_path / "report").write_text(LONG)
    refused_at_once(lambda: records.log_artifact(full_store, tmp_path / "report"), small_disk)


# ---------------------------------------- files


def test_a_journal_that_has_no_room_is_one_line_and_keeps_its_whole_rows(
    home: Path, small_disk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_id, file = runs.open_flow_run("e", "n"), small_disk / "journal.jsonl"
    log = MetricLog(run_id, file)
    log(1, {"loss": 1.0})
    fill(small_disk)

    def more() -> None:
        for step in range(2, 5000):
            log(step, {"loss": 1.0 * step})

    refused_at_once(more, file)
    refused_at_once(log.close, file)
    rows = journal.read_journal(file)
    assert [row.step for row in rows] == list(range(1, len(rows) + 1))
    refused_at_once(lambda: journal.write_journal(small_disk / "new", rows), small_disk / "new")
    assert {entry.name for entry in small_disk.iterdir()} == {"journal.jsonl", "filler"}


def test_a_result_that_has_no_room_is_one_line_and_no_result(
    full_store: str, small_disk: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.configure(home)  # the database is on another disk
    parent = runs.open_flow_run("e", "n")
    (small_disk / "filler").unlink()
    folder = step_folder(small_disk, "a", "key")

    def work(folder: Path, run_id: str) -> StepOutput:
        fill(small_disk)
        return StepOutput("digest", "headline")

    refused_at_once(lambda: run_step(context(small_disk, "a", "key", parent), work), folder)
    assert list(folder.iterdir()) == []

    def writing(folder: Path, run_id: str) -> StepOutput:
        (folder / "output").write_text(LONG)
        return StepOutput("digest", "headline")

    other = context(small_disk, "b", "key", parent)
    refused_at_once(lambda: run_step(other, writing), other.folder)
    assert {run.info.status for run in store.client().search_runs(["1", "2"]) if run.info.run_id != parent} == {
        "FAILED"
    }


def test_caches_that_have_no_room_are_one_line_and_leave_no_part(small_disk: Path) -> None:
    model = tiny_policy(torch.float32)
    tokenizer = train_tokenizer(["1 + 1"], TokenizerSettings(kind="bytes", vocabulary=300))
    codec = CachedCodec(tokenizer, folder=small_disk)
    fill(small_disk)
    refused_at_once(lambda: cached_reference_log_probs(small_disk, model, SEQUENCES), small_disk)
    refused_at_once(lambda: codec.prompts(["1 + 1 = " * 100]), small_disk)
    refused_at_once(lambda: precision.fastest_precision(model, small_disk), small_disk)
    assert [entry.name for entry in small_disk.iterdir()] == ["filler"]


def test_a_checkpoint_that_has_no_room_is_one_line_and_leaves_the_one_before(small_disk: Path) -> None:
    module = torch.nn.Linear(100, 100)
    root = small_disk / "checkpoints"
    write_checkpoint(root, 1, state_of({"policy": module}, {}), {"policy": 1})
    fill(small_disk)
    refused_at_once(
        lambda: write_checkpoint(root, 2, state_of({"policy": module}, {}), {"policy": 2}), root / "round_000002"
    )
    checkpoint = newest_checkpoint(root)
    assert checkpoint is not None and checkpoint.round_number == 1


# ---------------------------------------- the command


@pytest.mark.rotating(of=6)
def test_a_run_on_a_nearly_full_disk_is_refused_before_anything_starts(small_disk: Path) -> None:
    command = [sys.executable, "-m", "flows.command_line", "run", "arithmetic"]
    home = small_disk / "state"
    ended = subprocess.run(
        command, cwd=ROOT, env={**os.environ, "REWARDFLOW_HOME": str(home)}, capture_output=True, text=True, timeout=300
    )
    assert (ended.returncode, ended.stdout) == (1, "")
    (line,) = ended.stderr.splitlines()
    assert line.startswith(f"error: {home}: only ") and "a run needs 64 at the least" in line
    assert not home.exists()


def test_room_enough_is_not_refused(tmp_path: Path) -> None:
    assert shutil.disk_usage(tmp_path).free > LEAST_FREE
    require_space(tmp_path / "not" / "there" / "yet")
    require_space(tmp_path / ("x" * 300))  # the code that makes the folder reports that it cannot


def test_whatever_a_server_on_a_full_disk_says_the_command_ends_with_the_cause(
    small_disk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REWARDFLOW_HOME", str(small_disk))
    error = RuntimeError("Server error '500 Internal Server Error'")
    assert "500 Internal Server Error" in ending(error)[1]
    fill(small_disk)
    assert ending(error) == (1, f"error: {no_space(small_disk)}")


def test_a_full_disk_is_known_by_whatever_wraps_it() -> None:
    try:
        try:
            raise OSError(28, "No space left on device")
        except OSError as cause:
            raise ValueError("a wrapper") from cause
    except ValueError as error:
        assert out_of_space(error)
    assert out_of_space(RuntimeError("(sqlite3.OperationalError) database or disk is full\n[SQL: INSERT]"))
    assert not out_of_space(OSError(5, "Input/output error")) and not out_of_space(RuntimeError("database is locked"))

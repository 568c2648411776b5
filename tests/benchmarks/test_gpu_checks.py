"""Tests of the unattended checks on a GPU: a step that fails or hangs does not stop the next. No GPU is needed."""

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from benchmarks.gpu import checks as gpu_checks
from benchmarks.gpu.checks import LARGEST_LOG, CheckStep, limit_of, main, minutes_within, parser, run, run_all, steps


def saying(name: str, code: str, share: float = 1.0) -> CheckStep:
    return CheckStep(name, share, lambda seconds: [sys.executable, "-c", code])


def alive(process: str) -> bool:
    """Return whether a process runs. A zombie, which has ended but was not waited for, does not run."""
    state = subprocess.run(["ps", "-o", "stat=", "-p", process], capture_output=True, text=True).stdout.strip()
    return bool(state) and not state.startswith("Z")


def summary(folder: Path) -> dict[str, Any]:
    read: dict[str, Any] = json.loads((folder / "summary.json").read_text())
    return read


def test_a_step_that_fails_leaves_the_next_and_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    every = [
        saying("tests", "print('1 failed'); raise SystemExit(3)"),
        saying("gpu", "print('measured')"),
    ]
    assert run_all(every, 100, tmp_path) == 1
    read_back = summary(tmp_path)
    assert read_back["passed"] is False
    assert [(step["name"], step["status"], step["line"]) for step in read_back["steps"]] == [
        ("tests", 3, "1 failed"), ("gpu", 0, "measured"),
    ]  # fmt: skip
    assert (tmp_path / "gpu.log").read_text() == "measured\n"
    assert "1 failed" in capsys.readouterr().out


def test_all_is_well_only_where_every_step_passed(tmp_path: Path) -> None:
    assert run_all([saying("tests", "pass"), saying("gpu", "pass")], 100, tmp_path) == 0
    assert summary(tmp_path)["passed"] is True
    assert summary(tmp_path)["steps"][0]["line"] == "it printed nothing"


@pytest.mark.rotating(of=6)
def test_a_step_that_hangs_is_ended_with_what_it_started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu_checks, "LEAST_SECONDS", 0.0)
    monkeypatch.setattr(gpu_checks, "GRACE_SECONDS", 0.1)
    deaf = (
        "import signal, subprocess, time; signal.signal(signal.SIGINT, signal.SIG_IGN)\n"
        "print(subprocess.Popen(['sleep', '60']).pid, flush=True); time.sleep(60)"
    )
    outcome = run(saying("tests", deaf), 2.0, tmp_path)
    assert outcome.timed_out and not outcome.passed and outcome.status == -9
    ends = time.monotonic() + 30
    while alive(outcome.line):
        assert time.monotonic() < ends, "what the step started lives on"
        time.sleep(0.05)


def test_a_step_for_which_no_time_is_left_is_not_begun(tmp_path: Path) -> None:
    # The share of the second step alone is too short. It also gets the time that the first step did not use.
    assert run_all([saying("tests", "pass"), saying("gpu", "pass", share=0.1)], 30, tmp_path) == 0
    assert run_all([saying("tests", "pass")], 5, tmp_path) == 1
    (only,) = summary(tmp_path)["steps"]
    assert only["status"] is None and only["line"] == "5 s were left for it"


def test_the_time_is_shared_and_what_is_saved_goes_to_the_steps_behind() -> None:
    every = steps("cuda", False, Path("out"))
    assert [step.name for step in every] == ["tests", "gpu", "main_curve"]
    whole = sum(step.share for step in every)
    assert limit_of(0, every, 720) == pytest.approx(720 * every[0].share / whole)
    assert limit_of(1, every, 720) > 720 * every[1].share / whole
    assert limit_of(2, every, 100) == 100
    assert float(minutes_within(360)) < 6


def test_budgets_are_numbers_above_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    assert parser().parse_args(["--out", "x"]).minutes == 12
    assert parser().parse_args(["--out", "x", "--minutes", "0.5"]).minutes == 0.5
    for wrong in ("0", "-1", "nan", "soon"):
        with pytest.raises(SystemExit):
            parser().parse_args(["--out", "x", "--minutes", wrong])
    assert "invalid" in capsys.readouterr().err


def test_every_step_writes_into_the_folder_and_tiny_ones_are_small(tmp_path: Path) -> None:
    for tiny in (True, False):
        tests, gpu, curve = (step.command(60.0) for step in steps("cpu", tiny, tmp_path))
        assert ("--tiny" in gpu) is tiny and ("--rounds" in curve) is tiny
        assert [word for word in (*gpu, *curve) if word.startswith(str(tmp_path))] == [
            str(tmp_path / "gpu.json"), str(tmp_path / "main_curve_cpu.json"),
        ]  # fmt: skip
        assert all((gpu_checks.ROOT / word).exists() for word in tests if word.startswith("tests/"))


def test_of_a_log_too_long_the_end_is_kept(tmp_path: Path) -> None:
    outcome = run(saying("gpu", f"print('x' * {LARGEST_LOG}); print('the end')"), 60, tmp_path)
    assert outcome.line == "the end" and (tmp_path / "gpu.log").stat().st_size == LARGEST_LOG


def test_the_command_runs_its_steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu_checks, "steps", lambda device, tiny, out: [saying("tests", f"print({device!r}, {tiny})")])
    out = tmp_path / "new" / "folder"
    assert main(["--device", "cpu", "--tiny", "--minutes", "1", "--out", str(out)]) == 0
    assert summary(out)["steps"][0]["line"] == "cpu True"


@pytest.mark.thorough
def test_it_imports_no_torch_whose_context_would_take_memory_of_the_device() -> None:
    code = "import sys, benchmarks.gpu.checks; print('torch' in sys.modules)"
    asked = subprocess.run(
        [sys.executable, "-c", code], cwd=gpu_checks.ROOT, capture_output=True, text=True, check=True
    )
    assert asked.stdout.strip() == "False"

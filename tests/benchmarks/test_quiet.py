"""Tests that results are written only on a quiet machine. The load of other processes is their CPU time."""

import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks import __main__ as command
from benchmarks.shared.quiet import AT_MOST, Busy, Watch, foreign_cpu_seconds
from benchmarks.shared.settings import Settings


def burn(seconds: float) -> None:
    """Start a process that uses this much CPU time, and wait for its end."""
    code = f"import time\nwhile time.process_time() < {seconds}: pass"
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.fixture
def bystander() -> Iterator[int]:
    """Start an idle process and yield its id. From its view, this test and its children are other processes."""
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    yield process.pid
    process.communicate(b"\n")


def test_the_time_of_others_counts_also_where_they_have_ended(bystander: int) -> None:
    """Up to three attempts: the CPU time of any process that ends without a waiting parent vanishes from the sum."""

    def seen() -> bool:
        began, watch = time.perf_counter(), Watch(own=bystander)
        burn(0.5)
        return watch.cores() * (time.perf_counter() - began) >= 0.49

    assert any(seen() for _ in range(3))


def test_what_the_measurement_itself_takes_is_not_of_others(bystander: int) -> None:
    ours_before, all_before = foreign_cpu_seconds(), foreign_cpu_seconds(own=bystander)
    burn(0.5)
    ours, all_but_the_bystander = foreign_cpu_seconds() - ours_before, foreign_cpu_seconds(own=bystander) - all_before
    assert all_but_the_bystander - ours >= 0.45


def test_a_busy_machine_writes_no_result_unless_that_is_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Watch, "cores", lambda self: AT_MOST + 0.1)
    monkeypatch.setattr(command, "BENCHMARKS", {"nothing": "empty_benchmark"})
    (tmp_path / "empty_benchmark.py").write_text("def measure(settings, name):\n    return []\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr("benchmarks.shared.machine.matmul_peak", lambda device, dtype: 1.0)
    monkeypatch.setattr("benchmarks.shared.quiet.LOOK", 0.0)
    out = tmp_path / "results"
    with pytest.raises(Busy, match=r"0\.6 cores before the measurement .* nothing is written"):
        command.run_here("nothing", Settings(quick=True), out)
    assert not out.exists()
    command.run_here("nothing", Settings(quick=True), out, busy=True)
    assert [path.name for path in out.iterdir()] == ["nothing.json"]

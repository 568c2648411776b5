"""Tests of runs that wait for a folder: one at a time, in the order of arrival, with real processes."""

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from running import wait_for

from flows.runtime.turn import HALF_A_DAY, QUEUE, WAIT, only_run, patience
from models.base.errors import UserError

ROOT = Path(__file__).resolve().parents[2]

RUN = """
import sys
from pathlib import Path
from flows.runtime.turn import only_run
home, name = Path(sys.argv[1]), sys.argv[2]
with only_run(home, 60, lambda line: print(line, flush=True)):
    with (home / "turns").open("a") as turns:
        turns.write(name + " ")
    print("begun", flush=True)
    sys.stdin.readline()
"""


@contextmanager
def started(home: Path, name: str) -> Iterator[subprocess.Popen[str]]:
    """Start a run in a process of its own. It continues until a line is written to it."""
    process = subprocess.Popen(
        [sys.executable, "-c", RUN, str(home), name],
        cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def line_of(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def end(process: subprocess.Popen[str]) -> None:
    process.communicate("end\n", timeout=60)
    assert process.returncode == 0


def test_one_run_at_a_time_holds_a_folder_and_its_end_frees_it(tmp_path: Path) -> None:
    with (
        only_run(tmp_path),
        pytest.raises(UserError, match=r"another run \(process \d+\) is in progress in this folder; wait for it or"),
        only_run(tmp_path),
    ):
        pass
    with only_run(tmp_path):
        pass
    assert not list((tmp_path / QUEUE).iterdir())


@pytest.mark.rotating(of=6)
def test_runs_have_their_turn_in_the_order_in_which_they_came_and_the_dead_are_passed_over(tmp_path: Path) -> None:
    with started(tmp_path, "1") as first:
        assert line_of(first) == "begun"
        with started(tmp_path, "2") as second, started(tmp_path, "3") as third, started(tmp_path, "4") as fourth:
            waiting: list[subprocess.Popen[str]] = []
            for process in (second, third, fourth):  # they may start in any order, so their tickets are read
                said = line_of(process)
                assert said.startswith(f"waiting for the run of process {first.pid} in {tmp_path} to end")
                waiting.append(process)
            tickets = sorted(path.name.partition("-")[2] for path in (tmp_path / QUEUE).iterdir())
            order = sorted(waiting, key=lambda process: _arrival(tmp_path, process.pid))
            assert tickets == sorted(str(process.pid) for process in waiting)
            order[0].kill()
            order[0].wait()
            first.kill()  # its locks on folder and ticket are released
            first.wait()
            assert wait_for("the next one", lambda: line_of(order[1]), order[1]) == "begun"
            end(order[1])
            while (said := line_of(order[2])) != "begun":
                assert said.startswith(f"waiting for the run of process {order[1].pid}")
            end(order[2])
    turns = (tmp_path / "turns").read_text().split()
    assert len(turns) == 3 and not list((tmp_path / QUEUE).iterdir())


def _arrival(home: Path, pid: int) -> str:
    (ticket,) = (home / QUEUE).glob(f"*-{pid}")
    return ticket.name


@pytest.mark.rotating(of=6)
def test_who_has_waited_long_enough_gives_up_in_a_line_and_leaves_no_ticket(tmp_path: Path) -> None:
    heard: list[str] = []
    with only_run(tmp_path):
        began = time.monotonic()
        with pytest.raises(UserError, match="another run"), only_run(tmp_path, 1.0, heard.append):
            pass
        assert time.monotonic() - began >= 1.0
        assert len(heard) == 1 and not list((tmp_path / QUEUE).iterdir())


def test_how_long_a_run_waits_is_said_in_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(WAIT, raising=False)
    assert patience() == HALF_A_DAY
    monkeypatch.setenv(WAIT, "0")
    assert patience() == 0
    for wrong in ("soon", "-1", "nan"):
        monkeypatch.setenv(WAIT, wrong)
        with pytest.raises(UserError, match=f"REWARDFLOW_WAIT is '{wrong}'; set it to the seconds"):
            patience()

"""Tests of Ctrl-C and SIGTERM: one line, no traceback, the exit status of a shell, no server left, the run KILLED.

The signals go to a whole process group, as Ctrl-C in a terminal does.
"""

import contextlib
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest
from project import Project, Ran, environment
from running import ROOT, Pair, wait_for

from tasks.runner import interrupt
from tasks.tracking import store, summaries

pytestmark = pytest.mark.rotating(of=6)

INTERRUPTED = "interrupted; the same command continues from the last checkpoint"
ENDED = "ended by SIGTERM; the same command continues from the last checkpoint"


@dataclass
class Ended:
    """Result of a process group that received a signal."""

    status: int
    seconds: float
    """Time from the signal to the end."""
    out: str
    err: str


def signalled(process: subprocess.Popen[str], number: signal.Signals) -> Ended:
    started = time.monotonic()
    os.killpg(process.pid, number)
    out, err = process.communicate(timeout=120)
    return Ended(process.returncode, time.monotonic() - started, out, err)


def servers_of(home: Path) -> list[psutil.Process]:
    """Return the temporary Prefect servers of the state folder `home`."""
    there = []
    for process in psutil.process_iter():
        try:
            marks = process.environ()
        except psutil.Error:
            continue
        if marks.get("PREFECT__SERVER_EPHEMERAL") == "1" and marks.get("PREFECT_HOME") == f"{home}/prefect":
            there.append(process)
    return there


def assert_one_line(ended: Ended, line: str) -> None:
    assert "Traceback" not in ended.out + ended.err, ended.err
    assert [text for text in ended.err.splitlines() if text.strip()] == [line], ended.err
    assert ended.seconds < 30  # Earlier it took 71 to 81 s; on an idle machine it takes less than 10 s.


# ---------------------------------------- a training


@pytest.fixture
def training(project: Project, first: Ran, tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """Start a run of thousands of rounds with a temporary server, and yield it in its first rounds."""
    before = set(project.home.glob("store/fine_tune/*"))
    rounds = f"schedule.rounds={5000 + len(before)}"  # unique, so that the run does not continue another one
    command = [sys.executable, "-m", "flows.command_line", "run", "tiny", "--set", rounds]
    process = subprocess.Popen(
        command,
        cwd=project.folder,
        env=environment(**project.settings(own_server=True)),
        stdout=subprocess.PIPE,
        stderr=(tmp_path / "err").open("w"),
        text=True,
        start_new_session=True,
    )

    def begun() -> bool:
        fresh = [file for file in project.home.glob("store/fine_tune/*/metrics.jsonl") if file.parent not in before]
        return any(file.stat().st_size for file in fresh)

    wait_for("the first rounds", begun, process)
    yield process
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("number", "status", "line"),
    [
        pytest.param(signal.SIGINT, 130, INTERRUPTED, id="^C"),
        pytest.param(signal.SIGTERM, 143, ENDED, id="TERM", marks=pytest.mark.thorough),
    ],
)
def test_a_training_that_is_interrupted_ends_at_once_with_one_line(
    training: subprocess.Popen[str],
    project: Project,
    first: Ran,
    tmp_path: Path,
    number: signal.Signals,
    status: int,
    line: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    servers = servers_of(project.home)
    assert len(servers) == 1  # The temporary server runs and uses this state folder.
    before = (tmp_path / "err").stat().st_size
    ended = signalled(training, number)
    ended.err = (tmp_path / "err").read_text()[before:]
    assert ended.status == status
    assert_one_line(ended, line)
    assert not psutil.wait_procs(servers, timeout=10)[1]
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    store.configure(first.home)
    newest = summaries.recent_runs("tiny", 1)[0]
    steps = {step.name: step.status for step in summaries.run_summary("tiny", newest.run_id).steps}
    assert (newest.status, steps["fine_tune"]) == ("KILLED", "KILLED")


# ---------------------------------------- a small flow, interrupted at different moments


def small_flow(home: Path, **extra: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, str(ROOT / "tests/flows/small_flow.py"), "small"],
        cwd=home,
        env=environment(PYTHONPATH=str(ROOT), REWARDFLOW_HOME=str(home), **extra),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def until(process: subprocess.Popen[str], moment: str) -> None:
    assert process.stdout is not None
    for line in process.stdout:
        if line == f"at {moment}\n":
            return
    pytest.fail(f"it never came to {moment!r}: {process.communicate()[1]}")


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=["^C", "TERM"])
def test_an_interrupt_before_the_flow_leaves_no_server(tmp_path: Path, number: signal.Signals) -> None:
    process = small_flow(tmp_path)
    until(process, "server starts")
    servers = servers_of(tmp_path)
    ended = signalled(process, number)
    assert ended.status == 128 + number
    assert_one_line(ended, interrupt.WORDS[number])
    assert len(servers) == 1 and not psutil.wait_procs(servers, timeout=10)[1]


@pytest.mark.slow
@pytest.mark.parametrize(
    "moment", ["round", *(pytest.param(late, marks=pytest.mark.thorough) for late in ("end of the body", "closing"))]
)
def test_an_interrupt_that_a_library_swallows_is_raised_again(moment: str, servers: Pair, tmp_path: Path) -> None:
    process = small_flow(tmp_path, PREFECT_API_URL=f"{servers.prefect}/api")
    until(process, moment)
    ended = signalled(process, signal.SIGINT)
    assert ended.status == 130
    assert_one_line(ended, INTERRUPTED)
    assert "at end\n" not in ended.out
    assert ("at swallowed\n" in ended.out) == (moment == "round")


@pytest.mark.slow
def test_a_command_that_is_killed_leaves_no_server(tmp_path: Path) -> None:
    process = small_flow(tmp_path)
    until(process, "server starts")
    servers = wait_for("its server", lambda: servers_of(tmp_path))  # before exec, it has its parent's environment
    signalled(process, signal.SIGKILL)
    assert len(servers) == 1 and not psutil.wait_procs(servers, timeout=20)[1]


# ---------------------------------------- the handler itself


def handled(code: str) -> subprocess.CompletedProcess[str]:
    program = f"import os, signal, time\nfrom tasks.runner import interrupt\ninterrupt.install()\n{code}"
    return subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, timeout=60)


SWALLOW = "try:\n    os.kill(os.getpid(), signal.SIGINT)\n    time.sleep(5)\nexcept KeyboardInterrupt:\n    pass\n"


def test_one_ctrl_c_that_arrives_twice_counts_once() -> None:
    done = handled(SWALLOW + "os.kill(os.getpid(), signal.SIGINT)\nprint(interrupt.received_signal())")
    assert (done.returncode, done.stdout.strip()) == (0, "2"), done.stderr


def test_a_second_ctrl_c_leaves_at_once() -> None:
    done = handled(SWALLOW + "time.sleep(1.1)\nos.kill(os.getpid(), signal.SIGINT)\ntime.sleep(5)\nprint('stayed')")
    assert (done.returncode, done.stdout, done.stderr) == (130, "", f"\n{INTERRUPTED}\n")


def test_a_swallowed_interrupt_is_raised_at_the_next_round() -> None:
    done = handled(SWALLOW + "interrupt.raise_again()")
    assert done.returncode != 0 and re.search(r"KeyboardInterrupt\s*$", done.stderr)


DROPPED = """
import weakref

class Held:
    pass

class Finalised:
    def __del__(self):
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(5)

def callback(_):
    os.kill(os.getpid(), signal.SIGINT)
    time.sleep(5)

held = Held()
watched = weakref.ref(held, callback)
try:
    HAPPENS
    time.sleep(10)
except KeyboardInterrupt:
    print(interrupt.received_signal(), "raised")
time.sleep(0.1)
print("once")
"""


@pytest.mark.parametrize("happens", ["Finalised()", "del held"], ids=["finaliser", "weak reference's callback"])
def test_an_interrupt_that_python_drops_is_raised_again_without_a_word(happens: str) -> None:
    done = handled(DROPPED.replace("HAPPENS", happens))
    assert (done.returncode, done.stdout, done.stderr) == (0, "2 raised\nonce\n", "")


def test_what_else_is_dropped_is_still_shown() -> None:
    done = handled("class Faulty:\n    def __del__(self):\n        raise ValueError('shown')\n\nFaulty()")
    assert done.returncode == 0 and "ValueError: shown" in done.stderr


# ---------------------------------------- other causes that stop a flow


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """Mount a file system of 48 MiB, and yield its folder."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=48m", "tmpfs", folder], capture_output=True)
    if mounted.returncode:
        pytest.skip(f"no file system can be mounted here: {mounted.stderr.decode().strip()}")
    yield folder
    subprocess.run(["umount", "-l", folder], check=True)


@pytest.mark.thorough
def test_a_disk_that_becomes_full_in_a_step_stops_the_flow_with_one_line(disk: Path) -> None:
    process = small_flow(disk)
    until(process, "round")
    started = time.monotonic()
    with contextlib.suppress(OSError), (disk / "filler").open("wb", buffering=0) as file:
        while file.write(b"0" * 2**16):
            pass
    out, err = process.communicate(timeout=120)
    assert process.returncode == 1, out + err
    assert_one_line(Ended(1, time.monotonic() - started, out, err), f"error: {no_space_line(err)}")


def no_space_line(err: str) -> str:
    """Return the line about a full disk in `err`, with whatever path it contains."""
    named = re.search(r"error: (/\S+: no space left to write it \(0 MiB free\); nothing half-written)", err)
    assert named, err
    return named[1]

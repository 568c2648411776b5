"""Time limits of steps: a step that takes too long is interrupted, or killed if it swallows the exception."""

import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from models.base.errors import UserError
from models.recipes.load import load_recipe
from tasks.runner.deadline import TookTooLong, deadline

ROOT = Path(__file__).resolve().parents[2]

STUBBORN = """
import time
from tasks.runner.deadline import deadline
with deadline("fine_tune", 0.2, grace=0.5):
    print("begun", flush=True)
    while True:
        try:
            time.sleep(600)
        except Exception:
            pass
"""


def test_what_takes_too_long_is_ended_with_a_line_that_names_the_step_and_its_setting() -> None:
    began = time.monotonic()
    said = r"^evaluate took longer than the 0.2 s that timeouts.evaluate allows$"
    with pytest.raises(TookTooLong, match=said), deadline("evaluate", 0.2):
        while True:
            time.sleep(10)
    assert time.monotonic() - began < 5


def test_what_is_in_time_is_left_alone_and_no_alarm_comes_afterwards() -> None:
    before = signal.getsignal(signal.SIGALRM)
    with deadline("evaluate", 0.3):
        pass
    assert signal.getsignal(signal.SIGALRM) is before and signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)
    with pytest.raises(KeyError), deadline("evaluate", 0.3):
        raise KeyError
    assert signal.getsignal(signal.SIGALRM) is before and signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)
    with deadline("evaluate", None):
        assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)


def test_outside_the_main_thread_nothing_is_watched() -> None:
    ended: list[str] = []

    def work() -> None:
        with deadline("evaluate", 0.01, grace=0.01):
            time.sleep(0.2)
        ended.append("in peace")

    thread = threading.Thread(target=work)
    thread.start()
    thread.join(timeout=30)
    assert ended == ["in peace"]


@pytest.mark.rotating(of=6)
def test_code_that_swallows_the_exception_is_killed_with_its_process_and_a_line() -> None:
    process = subprocess.run([sys.executable, "-c", STUBBORN], cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert process.stdout == "begun\n" and process.returncode == -signal.SIGKILL
    line = "error: fine_tune took longer than the 0.2 s that timeouts.fine_tune allows, and could not be interrupted"
    assert line in process.stderr


def test_every_step_has_its_limit_in_the_recipe() -> None:
    recipe = load_recipe("grpo", ["timeouts.fine_tune=3600"])
    assert recipe.timeouts.of("fine_tune") == 3600 and recipe.timeouts.of("evaluate") == 86_400
    for wrong in ("timeouts.fine_tune=0", "timeouts.evaluate=soon", "timeouts.fine_tuning=3"):
        with pytest.raises(UserError, match=wrong.partition("=")[0]):
            load_recipe("grpo", [wrong])

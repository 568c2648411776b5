"""Time limit of a call, `within`: it ends a call that hangs, and leaves no thread and no pending signal."""

import re
import signal
import subprocess
import threading
import time
from collections.abc import Callable
from contextlib import suppress

import pytest

from models.base.time_limit import SIGNAL, within


def spin() -> None:
    while True:
        pass


def deaf() -> None:
    """Ignore every interruption in the first 1.5 seconds, and check that none is an Exception; re-raise later ones."""
    until = time.monotonic() + 20
    while time.monotonic() < until:
        try:
            time.sleep(20)
        except BaseException as error:
            if time.monotonic() - until > -18.5:
                raise
            assert not isinstance(error, Exception)


HANGS: dict[str, Callable[[], object]] = {
    "sleep": lambda: time.sleep(30),
    "a loop": spin,
    "a lock": lambda: threading.Lock().acquire() and _locked().acquire(),
    "a process": lambda: subprocess.run(["sleep", "30"]),
    "a regular expression": lambda: re.match(r"(a+)+$", "a" * 60 + "b"),
}


def _locked() -> threading.Lock:
    lock = threading.Lock()
    lock.acquire()
    return lock


@pytest.mark.parametrize("kind", HANGS)
def test_what_hangs_is_ended_when_its_time_is_over(kind: str) -> None:
    began = time.monotonic()
    with pytest.raises(TimeoutError, match=r"took longer than 0\.1 s"):
        within(0.1, HANGS[kind])
    assert time.monotonic() - began < 10


@pytest.mark.rotating(of=6)
def test_a_call_that_catches_the_end_meets_it_again() -> None:
    began = time.monotonic()
    with pytest.raises(TimeoutError):
        within(0.1, deaf)
    assert time.monotonic() - began < 15


def test_a_call_in_time_gives_what_it_gives_and_raises_what_it_raises() -> None:
    assert within(5.0, lambda: 3) == 3
    with pytest.raises(ZeroDivisionError):
        within(5.0, lambda: 1 / 0)
    with pytest.raises(KeyboardInterrupt):
        within(5.0, lambda: (_ for _ in ()).throw(KeyboardInterrupt))


def test_nothing_is_left_of_a_limit_when_the_call_is_over() -> None:
    threads = threading.active_count()
    for _ in range(200):
        with suppress(TimeoutError):  # the call and its limit end at about the same moment
            within(0.002, lambda: time.sleep(0.002))
    with pytest.raises(TimeoutError):
        within(0.05, lambda: time.sleep(5))
    time.sleep(0.1)  # a late signal would end the test here
    assert signal.getsignal(SIGNAL) is signal.SIG_IGN and threading.active_count() == threads


def test_the_call_runs_in_its_callers_thread_and_may_set_an_alarm_of_its_own() -> None:
    def alarmed() -> threading.Thread:
        heard = []
        earlier = signal.signal(signal.SIGALRM, lambda number, frame: heard.append(number))
        try:
            signal.setitimer(signal.ITIMER_REAL, 0.02)
            time.sleep(0.1)
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, earlier)
        assert heard == [signal.SIGALRM]
        return threading.current_thread()

    def alarmed_and_asleep() -> None:
        alarmed()
        time.sleep(20)

    assert within(5.0, alarmed) is threading.current_thread()
    with pytest.raises(TimeoutError):  # the limit still holds after the call has set and removed its own alarm
        within(0.3, alarmed_and_asleep)


def test_a_limit_costs_less_than_a_thousandth_of_a_round() -> None:
    """A round takes seconds. CPU time is measured, because other work on the machine does not change it."""
    began = time.process_time()
    for _ in range(50):
        within(5.0, lambda: None)
    assert (time.process_time() - began) / 50 < 1e-3

"""Environment calls with a time limit in seconds, run concurrently with one another or with the engine.

On the main thread a call that takes too long is interrupted (`models.base.time_limit`). No other thread can be
interrupted from outside, so a call made elsewhere runs in a thread of its own, which is abandoned when the time is
over. Its late result is discarded, and the thread does not keep the process from ending.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from models.base.time_limit import within
from models.base.user_code.contain import contained, file_of, leaving

Result = TypeVar("Result")
AT_ONCE = 64
"""Calls that run concurrently."""


@dataclass(eq=False)
class EnvironmentCall:
    """A call of an environment that waits, runs or has ended."""

    number: int
    """Number of the episode."""
    call: Callable[[], Any]
    began: float = 0.0
    seconds: float = 0.0
    """Wall time of the call, seconds."""
    result: Any = None
    error: BaseException | None = None
    """The exception that it raised; a TimeoutError if it took too long."""


class EnvironmentCalls:
    """Environment calls in threads of their own, with a time limit.

    Args:
        seconds: time limit of each call.
        at_once: number of calls that may run concurrently.
        notify: called, from any thread, when a call has ended.
        file: file that the code of the calls comes from.
    """

    def __init__(self, seconds: float, at_once: int, notify: Callable[[], None], file: str) -> None:
        self._seconds, self._at_once, self._notify, self._file = seconds, at_once, notify, file
        self._lock = threading.Lock()
        self._waiting: deque[EnvironmentCall] = deque()
        self._under_way: list[EnvironmentCall] = []
        """Calls that run, in order of their start."""
        self._ended_calls: list[EnvironmentCall] = []

    def request(self, number: int, call: Callable[[], Any]) -> None:
        """Queue `call`, which starts as soon as a thread is free."""
        with self._lock:
            self._waiting.append(EnvironmentCall(number, call))
            self._start()

    def over(self) -> list[EnvironmentCall]:
        """Return the calls that have ended since the last call of `over`, including those that took too long."""
        now = time.perf_counter()
        with self._lock:
            late = [call for call in self._under_way if now - call.began >= self._seconds]
            for call in late:
                call.error = TimeoutError(f"took longer than {self._seconds:g} s")
                self._under_way.remove(call)
            self._start()
            ended_calls, self._ended_calls = [*self._ended_calls, *late], []
            return ended_calls

    def patience(self) -> float | None:
        """Return the seconds until the next call reaches its limit; None: no call is running."""
        with self._lock:
            if not self._under_way:
                return None
            return max(0.0, self._under_way[0].began + self._seconds - time.perf_counter())

    def _start(self) -> None:
        while self._waiting and len(self._under_way) < self._at_once:
            call = self._waiting.popleft()
            call.began = time.perf_counter()
            self._under_way.append(call)
            threading.Thread(target=self._work, args=(call,), name=f"environment-{call.number}", daemon=True).start()

    def _work(self, call: EnvironmentCall) -> None:
        result, error = None, None
        try:
            with leaving(self._file):
                result = call.call()
        except BaseException as raised:  # an environment may raise any exception
            error = raised
        with self._lock:
            if call not in self._under_way:
                return  # it was abandoned
            call.result, call.error, call.seconds = result, error, time.perf_counter() - call.began
            self._under_way.remove(call)
            self._ended_calls.append(call)
            self._start()
        self._notify()


def in_time(seconds: float, call: Callable[[], Result], code: object) -> Result:
    """Call code that may be the user's own, with a time limit, on any thread.

    Args:
        seconds: time limit.
        call: function without arguments.
        code: an object of the class that is called: an environment, or one of its episodes.

    Returns:
        The result of `call`.

    Raises:
        TimeoutError: it took longer than `seconds`.
        UserCodeError: it tried to end the process.
    """
    file = file_of(code)
    if threading.current_thread() is threading.main_thread():
        return contained(file, lambda: within(seconds, call), continues=True)
    ended = threading.Event()
    calls = EnvironmentCalls(seconds, 1, ended.set, file)
    calls.request(0, call)
    ended.wait(seconds)
    (finished_call,) = calls.over() or [EnvironmentCall(0, call, error=TimeoutError(f"took longer than {seconds:g} s"))]
    if finished_call.error is not None:
        raise finished_call.error
    result: Result = finished_call.result
    return result

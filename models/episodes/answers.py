"""Environments at work, under a limit of seconds, beside one another or beside the engine.

On the main thread a call that takes too long is ended where it stands (`models.loop.time_limit`). Elsewhere no thread
can be ended from outside: there a call gets a thread of its own, which is left behind when the time is over. What it
still does then reaches nobody, and it does not keep the process from ending.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from models.loop.time_limit import within
from models.user_code.contain import contained, file_of, leaving

Result = TypeVar("Result")
AT_ONCE = 64
"""Calls that work beside one another."""


@dataclass(eq=False)
class Call:
    """A call, under way or over."""

    number: int
    """Of the episode."""
    call: Callable[[], Any]
    began: float = 0.0
    seconds: float = 0.0
    """What it took."""
    result: Any = None
    error: BaseException | None = None
    """What it raised, a TimeoutError where it took too long."""


class Answers:
    """Calls in threads of their own.

    Args:
        seconds: that each may take.
        at_once: how many may work beside one another.
        notify: called, from any thread, when one is over.
        file: where the code of the calls comes from.
    """

    def __init__(self, seconds: float, at_once: int, notify: Callable[[], None], file: str) -> None:
        self._seconds, self._at_once, self._told, self._file = seconds, at_once, notify, file
        self._lock = threading.Lock()
        self._waiting: deque[Call] = deque()
        self._under_way: list[Call] = []
        """Those that began first stand first."""
        self._over: list[Call] = []

    def ask(self, number: int, call: Callable[[], Any]) -> None:
        """Have `call` made as soon as there is room."""
        with self._lock:
            self._waiting.append(Call(number, call))
            self._start()

    def over(self) -> list[Call]:
        """What is over since the last time, those that took too long among them."""
        now = time.perf_counter()
        with self._lock:
            late = [call for call in self._under_way if now - call.began >= self._seconds]
            for call in late:
                call.error = TimeoutError(f"took longer than {self._seconds:g} s")
                self._under_way.remove(call)
            self._start()
            over, self._over = [*self._over, *late], []
            return over

    def patience(self) -> float | None:
        """Seconds until the next of them has taken too long; None: nothing is under way."""
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

    def _work(self, call: Call) -> None:
        result, error = None, None
        try:
            with leaving(self._file):
                result = call.call()
        except BaseException as raised:  # whatever an environment raises
            error = raised
        with self._lock:
            if call not in self._under_way:
                return  # it was given up
            call.result, call.error, call.seconds = result, error, time.perf_counter() - call.began
            self._under_way.remove(call)
            self._over.append(call)
            self._start()
        self._told()


def in_time(seconds: float, call: Callable[[], Result], code: object) -> Result:
    """Call code that may be the user's own, on any thread.

    Args:
        seconds: that it may take.
        call: takes nothing.
        code: an object of the class that is called: an environment, or one of its episodes.

    Returns:
        What `call` returns.

    Raises:
        TimeoutError: it took longer than `seconds`.
        UserCodeError: it tried to end the process.
    """
    file = file_of(code)
    if threading.current_thread() is threading.main_thread():
        return contained(file, lambda: within(seconds, call), continues=True)
    ended = threading.Event()
    alone = Answers(seconds, 1, ended.set, file)
    alone.ask(0, call)
    ended.wait(seconds)
    (over,) = alone.over() or [Call(0, call, error=TimeoutError(f"took longer than {seconds:g} s"))]
    if over.error is not None:
        raise over.error
    result: Result = over.result
    return result

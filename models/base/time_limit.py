"""Time limit for a call of code that may block.

The call stays in its own thread: its results, random numbers, streams and locks are those of a call without a limit,
nothing is left running in the background, and the limit costs microseconds. A timer of the kernel sends the main thread
a signal when the time is over, and the signal's handler raises. That ends Python code, a regular expression that never
ends, and anything that waits: sleep, sockets, locks, processes. Code of another language that never checks
for signals cannot be ended from inside a process. Only the main thread runs handlers: in other threads a call has no
limit.

No other code uses this signal. Code that sets SIGALRM itself, such as a verifier with its own time limit, neither loses
its signal nor receives this one.
"""

from __future__ import annotations

import ctypes
import math
import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType
from typing import TypeVar

from models.base.user_code.contain import RunStops

SIGNAL = signal.SIGRTMIN + 7
AGAIN = 1.0
"""Seconds after which the signal is sent again to a call that has caught it."""
_TO_A_THREAD = 4
"""SIGEV_THREAD_ID of signal.h."""
_MONOTONIC = 1
"""CLOCK_MONOTONIC of time.h."""

Result = TypeVar("Result")


class _Expired(RunStops):
    """Raised inside the call; an `except Exception` in its code does not catch it."""


@dataclass
class _Call:
    active: bool = True


class _Event(ctypes.Structure):
    """struct sigevent of signal.h."""

    _fields_ = (
        ("value", ctypes.c_void_p),
        ("number", ctypes.c_int),
        ("notify", ctypes.c_int),
        ("thread", ctypes.c_int),
        ("room", ctypes.c_char * 44),
    )


class _Times(ctypes.Structure):
    """struct itimerspec of time.h: the interval, then the first time, in seconds and nanoseconds."""

    _fields_ = (("interval", ctypes.c_long * 2), ("first", ctypes.c_long * 2))


def within(seconds: float, call: Callable[[], Result]) -> Result:
    """Call `call` with a time limit and return its result; without a limit outside of the main thread.

    Raises:
        TimeoutError: it took longer than `seconds`.
    """
    thread = threading.current_thread()
    if thread is not threading.main_thread():
        return call()
    this = _Call()

    def expire(number: int, frame: FrameType | None) -> None:
        if this.active:
            raise _Expired

    earlier = signal.signal(SIGNAL, expire)
    try:
        with _signals(seconds, thread.native_id or 0):
            try:
                return call()
            finally:
                this.active = False
    except _Expired:
        raise TimeoutError(f"took longer than {seconds:g} s") from None
    finally:
        this.active = False
        # By default this signal ends the process; a signal that is still pending must not.
        signal.signal(SIGNAL, signal.SIG_IGN if earlier is signal.SIG_DFL else earlier)


@contextmanager
def _signals(seconds: float, thread: int) -> Iterator[None]:
    """Let the kernel send SIGNAL to a thread after `seconds`, and then again every `AGAIN`."""
    library = ctypes.CDLL(None, use_errno=True)
    if not hasattr(library, "timer_create"):  # before glibc 2.34
        library = ctypes.CDLL("librt.so.1", use_errno=True)
    timer = ctypes.c_void_p()
    event = _Event(number=int(SIGNAL), notify=_TO_A_THREAD, thread=thread)
    _require(library.timer_create(_MONOTONIC, ctypes.byref(event), ctypes.byref(timer)))
    try:
        times = _Times((ctypes.c_long * 2)(*_parts(AGAIN)), (ctypes.c_long * 2)(*_parts(seconds)))
        _require(library.timer_settime(timer, 0, ctypes.byref(times), None))
        yield
    finally:
        library.timer_delete(timer)


def _parts(seconds: float) -> tuple[int, int]:
    """Split into whole seconds and nanoseconds, at least one nanosecond in all."""
    whole = math.floor(seconds)
    return whole, max(int((seconds - whole) * 1e9), 0 if whole else 1)


def _require(status: int) -> None:
    if status:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))

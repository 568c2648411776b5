"""Ctrl-C and SIGTERM: a KeyboardInterrupt that a library swallows is raised again at the next step or round.

A KeyboardInterrupt is raised wherever the main thread happens to be, and libraries lose some: a `finally` that raises
over it, an `except` that catches everything, a thread's join. So the handler also records the signal, and
`raise_again()` is called where work begins. If Python itself drops the exception (a finaliser, a callback of a weak
reference: an import runs thousands), the interrupt is raised again a moment later instead of being printed. A second
signal, or one that arrives when the work is over, ends the process at once.
"""

from __future__ import annotations

import os
import posix
import signal
import sys
import threading
import time
from dataclasses import dataclass
from types import FrameType

TOGETHER = 1.0
"""Seconds within which two signals count as one: a terminal and a parent process may both forward one Ctrl-C."""

MOMENT = 0.01
"""Seconds until an interrupt that Python dropped is raised again: a finaliser takes far less."""

WORDS = {
    signal.SIGINT: "interrupted; the same command continues from the last checkpoint",
    signal.SIGTERM: "ended by SIGTERM; the same command continues from the last checkpoint",
}


@dataclass
class _StopRequest:
    """The request to stop that this process has received, if any."""

    number: signal.Signals | None = None
    at: float = 0.0
    installed: bool = False
    dropped: bool = False
    """The interrupt was raised where Python drops exceptions: the next signal is this module's and raises it again."""
    over: bool = False
    """The work is done or was stopped: the remaining clean-up must not be interrupted by an exception."""


_stop_request = _StopRequest()

_report_unraisable = sys.unraisablehook


def install() -> None:
    """Install the handlers of SIGINT and SIGTERM and forget earlier signals. Do nothing outside the main thread."""
    global _stop_request
    if threading.current_thread() is threading.main_thread():
        _stop_request = _StopRequest(installed=True)
        sys.unraisablehook = _on_dropped
        for number in WORDS:
            signal.signal(number, _on_signal)


def keep() -> None:
    """Set the handlers of `install` again if a library may have replaced them; do nothing before `install`."""
    if _stop_request.installed and threading.current_thread() is threading.main_thread():
        for number in WORDS:
            signal.signal(number, _on_signal)


def received_signal() -> signal.Signals | None:
    """Return the signal that requested this process to stop; None if there was none."""
    return _stop_request.number


def raise_again() -> None:
    """Raise KeyboardInterrupt if this process was requested to stop, even if it was raised before and lost.

    Raises:
        KeyboardInterrupt: Ctrl-C or SIGTERM was received.
    """
    if _stop_request.number is not None:
        raise KeyboardInterrupt


def work_is_over() -> None:
    """Make the next signals end the process at once, instead of raising KeyboardInterrupt during clean-up."""
    _stop_request.over = True


def status(number: signal.Signals) -> int:
    """Return the exit status of a process that a signal ended, as shells define it: 128 plus its number."""
    return 128 + int(number)


def _on_signal(number: int, frame: FrameType | None) -> None:
    stop_signal, now = signal.Signals(number), time.monotonic()
    if _stop_request.number is None:
        _stop_request.number, _stop_request.at = stop_signal, now
        if not _stop_request.over:
            raise KeyboardInterrupt
    elif _stop_request.dropped:
        _stop_request.dropped = False
        if not _stop_request.over:
            raise KeyboardInterrupt
        return
    elif now - _stop_request.at < TOGETHER:
        return
    os.write(2, f"\n{WORDS[_stop_request.number]}\n".encode())
    posix._exit(status(_stop_request.number))  # servers that were started here notice it and end


def _on_dropped(unraisable: sys.UnraisableHookArgs) -> None:
    is_stop_request = issubclass(unraisable.exc_type, KeyboardInterrupt) and _stop_request.number is not None
    if not is_stop_request or threading.current_thread() is not threading.main_thread():
        _report_unraisable(unraisable)
        return
    _stop_request.dropped = True
    timer = threading.Timer(MOMENT, signal.pthread_kill, (threading.main_thread().ident, _stop_request.number))
    timer.daemon = True
    timer.start()

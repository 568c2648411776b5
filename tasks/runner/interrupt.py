"""Ctrl-C and SIGTERM that stick: what swallows the first KeyboardInterrupt meets it again at the next step or round.

A KeyboardInterrupt is raised wherever the main thread happens to be, and libraries lose some: a `finally` that raises
over it, an `except` that takes everything, a thread's join. So the handler also remembers, and `raise_again()` stands
where work begins. Where Python itself drops an exception (a finaliser, a callback of a weak reference: an import runs
thousands), the interrupt is raised again a moment later instead of being printed. A second signal, or one that comes
when the work is over, leaves at once.
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
"""Seconds within which two signals are one wish: a terminal and a program above may both hand on one Ctrl-C."""

MOMENT = 0.01
"""Seconds until an interrupt that Python dropped comes again: a finaliser takes far less."""

WORDS = {
    signal.SIGINT: "interrupted; the same command goes on from the last checkpoint",
    signal.SIGTERM: "ended by SIGTERM; the same command goes on from the last checkpoint",
}


@dataclass
class _Asked:
    """What this process was asked."""

    number: signal.Signals | None = None
    at: float = 0.0
    installed: bool = False
    dropped: bool = False
    """The interrupt was raised where Python drops exceptions: the next signal comes from here and raises it again."""
    over: bool = False
    """The work is done or was stopped: what is left to do must not be broken by an exception."""


_asked = _Asked()

_report_unraisable = sys.unraisablehook


def install() -> None:
    """Take SIGINT and SIGTERM from here on, forgetting earlier ones. Only the main thread can; elsewhere: nothing."""
    global _asked
    if threading.current_thread() is threading.main_thread():
        _asked = _Asked(installed=True)
        sys.unraisablehook = _on_dropped
        for number in WORDS:
            signal.signal(number, _on_signal)


def keep() -> None:
    """Take the signals back where a library took them since `install`, which must have been called in this process."""
    if _asked.installed and threading.current_thread() is threading.main_thread():
        for number in WORDS:
            signal.signal(number, _on_signal)


def asked() -> signal.Signals | None:
    """The signal that asked this process to stop; None where none did."""
    return _asked.number


def raise_again() -> None:
    """Raise the interrupt that was asked for, wherever the first one went.

    Raises:
        KeyboardInterrupt: Ctrl-C or SIGTERM came.
    """
    if _asked.number is not None:
        raise KeyboardInterrupt


def work_is_over() -> None:
    """From here on a signal ends the process at once, with its line and status, instead of raising."""
    _asked.over = True


def status(number: signal.Signals) -> int:
    """Exit status of a process that `number` ended, as shells have it."""
    return 128 + int(number)


def _on_signal(number: int, frame: FrameType | None) -> None:
    this, now = signal.Signals(number), time.monotonic()
    if _asked.number is None:
        _asked.number, _asked.at = this, now
        if not _asked.over:
            raise KeyboardInterrupt
    elif _asked.dropped:
        _asked.dropped = False
        if not _asked.over:
            raise KeyboardInterrupt
        return
    elif now - _asked.at < TOGETHER:
        return
    os.write(2, f"\n{WORDS[_asked.number]}\n".encode())
    posix._exit(status(_asked.number))  # servers that were started here notice it and end


def _on_dropped(dropped: sys.UnraisableHookArgs) -> None:
    ours = issubclass(dropped.exc_type, KeyboardInterrupt) and _asked.number is not None
    if not ours or threading.current_thread() is not threading.main_thread():
        _report_unraisable(dropped)
        return
    _asked.dropped = True
    again = threading.Timer(MOMENT, signal.pthread_kill, (threading.main_thread().ident, _asked.number))
    again.daemon = True
    again.start()

"""A time limit for a step: an exception ends its Python code; if native code blocks, the process is killed.

The alarm of the kernel reaches the main thread at its next line of Python. Native code that blocks never reaches one:
then a second thread logs it and kills the process, as an operator would. The next run ends the killed MLflow run and
resumes from the newest checkpoint.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from models.base.errors import UserError

GRACE = 60.0
"""Seconds that a step has to end after the exception, before the process is killed."""


class TookTooLong(UserError):
    """A step was ended by its time limit."""


@contextmanager
def deadline(step: str, seconds: float | None, grace: float = GRACE) -> Iterator[None]:
    """Limit the time of the block; outside of the main thread, which alone receives the alarm, no limit applies.

    Args:
        step: name of a step, for the error message.
        seconds: time limit; None: unlimited.
        grace: seconds after which the process is killed if the exception did not end the block.

    Raises:
        TookTooLong: the block took longer.
    """
    if seconds is None or threading.current_thread() is not threading.main_thread():
        yield
        return
    line = f"{step} took longer than the {seconds:g} s that timeouts.{step} allows"

    def end(number: int, frame: FrameType | None) -> None:
        raise TookTooLong(line)

    over = threading.Event()
    threading.Thread(target=_kill, args=(over, seconds + grace, line), name=f"deadline of {step}", daemon=True).start()
    before = signal.signal(signal.SIGALRM, end)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        over.set()


def _kill(over: threading.Event, seconds: float, line: str) -> None:
    if not over.wait(seconds):
        os.write(2, f"\nerror: {line}, and could not be interrupted; the process is killed\n".encode())
        os.kill(os.getpid(), signal.SIGKILL)

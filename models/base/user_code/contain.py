"""Containment of user code: rewards, environments, tools, agent programs, files of parts.

    contained(file, call)    makes the call; afterwards the process has its earlier state
    leaving(file)            only turns an attempt to end the process into an error of the call

A call may fail; it cannot end the run. `sys.exit`, a KeyboardInterrupt of its own, `os._exit` and the like become a
`UserCodeError` that names the file. An interrupt by a real signal passes, and so does the run's own time limit.
Afterwards the state of `models.base.user_code.state` is restored. Values that the code has set belong to it: its next
call finds them again, so that a file may choose a folder or a signal's handler once, when it is imported. Generators of
random numbers belong to it, too; torch's follows the run's seed, which differs in each round.

Code in other threads shares the process with the run at work, so only the attempt to leave is caught there. Callers
that start such threads use one `contained` around all of them. A process that ends outside of Python (a crash of native
code, SIGKILL, `_exit` of C) cannot be contained.
"""

from __future__ import annotations

import os
import posix
import signal
import sys
import sysconfig
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, TypeVar

from models.base.errors import UserError, shortened
from models.base.user_code.state import ABSENT, Key, differences, read_state, write_state

Result = TypeVar("Result")
INTERRUPTS = (signal.SIGINT, signal.SIGTERM)
"""Signals that stop the run; handlers that the code sets for them are not kept for its next call."""
_TORCH_RANDOM = {("torch", "random"), ("torch", "cuda random")}
_NOT_KEPT = {"argv", "stdin", "stdout", "stderr", "excepthook"}
"""Kinds of state that are not kept for the next call."""
_NOT_THE_USERS = ("<", __file__, *(sysconfig.get_path(name) for name in ("stdlib", "purelib", "platlib")))
"""Prefixes of file names that are never shown in an error."""
_CLOSE = 0.05
"""Largest difference of two readings of one alarm, seconds."""
_LEAVE = posix._exit

_own: dict[str, dict[Key, Any]] = {}
"""File -> values that its code has set, for its next call."""
_torch_seed: dict[str, int] = {}
"""File -> the run's seed of torch's generator in its last call that continues."""
_active: set[str] = set()
"""Files whose state is currently separated."""
_inside: set[tuple[int, int]] = set()
"""Process and thread of the calls in progress."""


class UserCodeError(Exception):
    """Raised if a call of user code tried to end the process; names the file."""


class RunStops(BaseException):
    """Raised by the run into user code to end its call; containment lets it pass."""


class _Exited(BaseException):
    """Raised by `os._exit` in contained code."""


def contained(file: str, call: Callable[[], Result], *, continues: bool = False) -> Result:
    """Call user code so that it can neither end the process nor change its state; see the module docstring.

    Args:
        file: file of the code: named in the error, and the owner of the state that the code sets.
        call: function without arguments.
        continues: whether torch's generator continues from call to call within one seed of the run, as in the steps of
            an episode. Otherwise each call begins with the state of the run's generator.

    Returns:
        The return value of `call`.

    Raises:
        UserCodeError: the code tried to end the process.
    """
    with restored(file, continues=continues), leaving(file):
        return call()


@contextmanager
def leaving(file: str, what: str = "", ways: type[BaseException] = BaseException) -> Iterator[None]:
    """Raise a UserCodeError if the code in the context tries to end the process.

    Args:
        file: file of the code.
        what: purpose of the call, for the error message, such as "importing it".
        ways: exceptions that count as such an attempt; others pass.

    Raises:
        UserCodeError: the code tried to end the process.
    """
    os._exit = _exit  # type: ignore[assignment]
    place, noted = (os.getpid(), threading.get_ident()), list[int]()
    outermost = place not in _inside
    _inside.add(place)
    try:
        with _noting(noted):
            yield
    except (Exception, RunStops):
        raise
    except BaseException as error:
        if noted or not isinstance(error, (ways, _Exited)) or os.getpid() != place[0]:
            # a signal of the system, an exception that may pass, or a child process of the code
            raise
        raise UserCodeError(_line(file, what, error)) from None
    finally:
        if outermost:
            _inside.discard(place)


@contextmanager
def restored(file: str, *, continues: bool = False, engine_works: bool = False) -> Iterator[None]:
    """Apply the state that the code in the context has set earlier, and restore the run's state afterwards.

    Does nothing outside of the main thread, and inside of another `restored` of the same file.

    Args:
        file: the owner of the state that the code sets.
        continues: see `contained`.
        engine_works: whether an engine works at the same time: then torch's state is not changed.
    """
    if threading.current_thread() is not threading.main_thread() or file in _active:
        yield
        return
    mine, before, alarm = _own.setdefault(file, {}), read_state(), _alarm()
    seed = _seed() if continues else None
    follows = seed is not None and _torch_seed.get(file) == seed
    ignored = {"torch"} if engine_works else set()
    write_state({key: mine[key] for key in mine if key[0] not in ignored and (follows or key not in _TORCH_RANDOM)})
    _active.add(file)
    stopped = False
    try:
        yield
    except (RunStops, UserError):  # the latter is that of a step's time limit
        stopped = True
        raise
    finally:
        _active.discard(file)
        after = read_state()
        changed = {key: value for key, value in differences(before, after).items() if key[0] not in ignored}
        for key in [key for key in mine if key[0] not in ignored]:
            del mine[key]
        mine.update({key: after.get(key, ABSENT) for key in changed if key[0] not in _NOT_KEPT})
        if seed is not None:
            _torch_seed[file] = seed
        write_state(changed)
        _restore_alarm(alarm, stopped)
        if sys.stdin is not None and sys.stdin.closed:  # `exit()` and `quit()` close it, and with it descriptor 0
            sys.stdin = open(os.devnull)  # noqa: SIM115 - stays open: the first descriptor of the process


@contextmanager
def _noting(noted: list[int]) -> Iterator[None]:
    """Record the signals that stop the run, and pass them to the earlier handlers."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    earlier = {number: signal.getsignal(number) for number in INTERRUPTS}

    def note(number: int, frame: FrameType | None) -> Any:
        noted.append(number)
        handler = earlier[signal.Signals(number)]
        return handler(number, frame) if callable(handler) else None

    for number, handler in earlier.items():
        if callable(handler):
            signal.signal(number, note)
    try:
        yield
    finally:
        for number, handler in earlier.items():
            if callable(handler):
                signal.signal(number, handler)


def _exit(status: int) -> None:
    """Replace `os._exit`: inside of a contained call it ends the call."""
    if (os.getpid(), threading.get_ident()) in _inside:
        raise _Exited(status)
    _LEAVE(status)


def file_of(code: object) -> str:
    """Return the file that defines an object's class, or the name of its module if it has no file."""
    name = type(code).__module__
    return str(getattr(sys.modules.get(name), "__file__", None) or name)


def _line(file: str, what: str, error: BaseException) -> str:
    event = f"{what} {_described(error)}".strip()
    frames = [(frame.f_code.co_filename, line) for frame, line in traceback.walk_tb(error.__traceback__)]
    own = [(name, line) for name, line in frames if not name.startswith(_NOT_THE_USERS)]
    if not own:
        return f"{file}: {event}"
    name, line = own[-1]
    return f"{file}, line {line}: {event}" if name == file else f"{file}: {event} ({name}, line {line})"


def _described(error: BaseException) -> str:
    if isinstance(error, _Exited):
        return f"called os._exit({error.args[0]})"
    if isinstance(error, SystemExit):
        return f"called sys.exit({'' if error.code is None else shortened(repr(error.code))})"
    message = shortened(str(error), 200)
    return f"raised {type(error).__name__}{': ' if message else ''}{message}"


def _seed() -> int | None:
    torch = sys.modules.get("torch")
    return None if torch is None else int(torch.initial_seed())


def _alarm() -> tuple[float, float] | None:
    """Return the due time of the process's alarm, on the monotonic clock, and its interval; None if none is set."""
    left, interval = signal.getitimer(signal.ITIMER_REAL)
    return (time.monotonic() + left, interval) if left else None


def _restore_alarm(earlier: tuple[float, float] | None, stopped: bool) -> None:
    """Set the alarm of before the call again, unless the run stopped the call by it."""
    now = _alarm()
    if stopped and now is None and earlier is not None and earlier[0] <= time.monotonic():
        return
    if earlier is None:
        if now is not None:
            signal.setitimer(signal.ITIMER_REAL, 0)
    elif now is None or abs(now[0] - earlier[0]) > _CLOSE:
        signal.setitimer(signal.ITIMER_REAL, max(earlier[0] - time.monotonic(), 0.001), earlier[1])

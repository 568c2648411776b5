"""The process that holds an environment of verifiers, as this side sees it: started once, and again when it ended.

    host = host_of(Hosted(python, id, arguments))
    host.loaded()                          versions of the packages, number of tasks
    host.ask({"do": "list", ...}, 60)      an answer
    host.begin({"do": "play", ...}, done)  an episode; `done` is called with its answer or its failure

The requests are those of `models.agents.foreign.verifiers_program`. All episodes of a recipe run in one process, since
it takes seconds to import the package. A process that ends, or writes something that is not an answer, fails
the requests that wait for it; the next request starts another. It ends with this process.
"""

from __future__ import annotations

import atexit
import itertools
import json
import logging
import os
import signal
import subprocess
import tempfile
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from queue import SimpleQueue
from typing import Any

from models.agents.gateway.runners import end_of
from models.base.errors import UserError, last_line, shortened
from models.base.http_answers import loopback_direct
from models.base.other_interpreter import variables_for_other_interpreter

_LOG = logging.getLogger("rewardflow.episodes")
PROGRAM = Path(__file__).with_name("verifiers_program.py")
TO_LOAD = 600.0
"""Seconds that a process may take to import the package and to load the environment; hubs may be slow."""
TO_STOP = 5.0
"""Seconds after which a process that does not give up an episode is ended."""
RESTARTS = 20
"""How often a process starts a lost one again."""

Answer = Mapping[str, Any]


class HostLost(Exception):
    """The process ended, or answered with something that is not an answer."""


class Refusal(Exception):
    """The process reports an error; the text is for the user."""


@dataclass(frozen=True)
class Hosted:
    """An environment, and the interpreter that runs it."""

    python: str
    id: str
    arguments: str
    """Its arguments, as JSON."""


@dataclass(frozen=True)
class Loaded:
    """What a process reports when it has loaded its environment."""

    versions: Mapping[str, str]
    """Version of verifiers and of the environment's package, by their names."""
    tasks: int | None
    """Number of tasks; None if they do not end."""


@dataclass(eq=False)
class _Process:
    """A running process."""

    popen: subprocess.Popen[bytes]
    errors: Any
    waiting: dict[int, Callable[[Answer | Exception], None]] = field(default_factory=dict)
    lost: str = ""
    """Why nothing more can be expected from it; empty while it runs."""


class Host:
    """An environment in a process of another interpreter."""

    def __init__(self, hosted: Hosted) -> None:
        """Create the host without starting a process."""
        self._hosted = hosted
        self._loading = threading.Lock()
        self._lock = threading.Lock()
        """Held for moments only: the reader of the answers needs it."""
        self._process: _Process | None = None
        self._loaded: Loaded | None = None
        self._starts = 0
        self._numbers = itertools.count()

    def loaded(self) -> Loaded:
        """Start the process, if none runs, and return what it has loaded.

        Raises:
            UserError: the interpreter or the package is missing, the environment cannot be loaded, or the process was
                lost too often.
        """
        with self._loading:
            if self._process is not None and not self._process.lost and self._loaded is not None:
                return self._loaded
            if self._starts > RESTARTS:
                raise UserError(f"{self}: its process has been lost {self._starts} times; see the warnings before")
            self._starts += 1
            if self._starts > 1:
                _LOG.warning("%s: its process was lost and is started again (%d)", self, self._starts)
            self._process = self._start()
            request = {"do": "load", "id": self._hosted.id, "arguments": json.loads(self._hosted.arguments)}
            try:
                answer = self._ask(self._process, request, TO_LOAD)
            except (HostLost, Refusal, TimeoutError) as error:
                _end(self._process, "it could not load")
                raise UserError(f"{self}: {error}") from None
            self._loaded = Loaded(answer["versions"], answer["tasks"])
            return self._loaded

    def ask(self, request: Mapping[str, Any], seconds: float) -> Answer:
        """Send a request and return its answer.

        Raises:
            HostLost: the process ended.
            Refusal: the answer is an error.
            TimeoutError: there was no answer within `seconds`.
            UserError: see `loaded`.
        """
        self.loaded()
        assert self._process is not None
        return self._ask(self._process, request, seconds)

    def begin(self, request: Mapping[str, Any], done: Callable[[Answer | Exception], None]) -> Callable[[], None]:
        """Send a request, without waiting.

        Args:
            request: the request.
            done: called once in another thread, with the answer, or a HostLost or Refusal.

        Returns:
            A function that gives the request up. If the process ignores it, the process is ended.
        """
        self.loaded()
        process = self._process
        assert process is not None
        number = self._send(process, request, done)

        def stop() -> None:
            with self._lock:
                if number not in process.waiting:
                    return
            self._write(process, {"do": "stop", "number": number})

            def end_if_it_hangs() -> None:
                if number in process.waiting:
                    _end(process, "it hung")

            timer = threading.Timer(TO_STOP, end_if_it_hangs)
            timer.daemon = True
            timer.start()

        return stop

    def close(self) -> None:
        """End the process, if one runs."""
        if self._process is not None:
            _end(self._process, "it was closed")

    def __str__(self) -> str:
        return f"environment verifiers, {self._hosted.id}"

    def _start(self) -> _Process:
        errors = tempfile.TemporaryFile()  # noqa: SIM115 - open as long as the process
        variables = variables_for_other_interpreter() | {
            **loopback_direct(os.environ),
            "HF_HUB_DISABLE_PROGRESS_BARS": "1",
        }
        try:
            popen = subprocess.Popen(
                [self._hosted.python, str(PROGRAM)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors,
                start_new_session=True, env=variables,
            )  # fmt: skip
        except OSError as error:
            reason = shortened(error.strerror or str(error), 100)
            raise UserError(f"{self}: {shortened(self._hosted.python)} cannot be started ({reason})") from None
        process = _Process(popen, errors)
        threading.Thread(target=self._read, args=(process,), name="verifiers", daemon=True).start()
        return process

    def _ask(self, process: _Process, request: Mapping[str, Any], seconds: float) -> Answer:
        answers: SimpleQueue[Answer | Exception] = SimpleQueue()
        self._send(process, request, answers.put)
        try:
            answer = answers.get(timeout=seconds)
        except Exception:  # queue.Empty
            raise TimeoutError(f"no answer within {seconds:g} s") from None
        if isinstance(answer, Exception):
            raise answer
        return answer

    def _send(self, process: _Process, request: Mapping[str, Any], done: Callable[[Answer | Exception], None]) -> int:
        number = next(self._numbers)
        with self._lock:
            process.waiting[number] = done
            lost = process.lost
        if lost:
            self._fail(process)
        else:
            self._write(process, {"number": number, **request})
        return number

    def _write(self, process: _Process, request: Mapping[str, Any]) -> None:
        assert process.popen.stdin is not None
        try:
            with self._lock:
                process.popen.stdin.write(json.dumps(request).encode() + b"\n")
                process.popen.stdin.flush()
        except (OSError, ValueError):  # it has ended; its reader reports this to those who wait
            return

    def _read(self, process: _Process) -> None:
        assert process.popen.stdout is not None
        for line in process.popen.stdout:
            try:
                answer = json.loads(line)
                number = int(answer["number"])
            except (ValueError, TypeError, KeyError, RecursionError):
                _end(
                    process,
                    f"it wrote something that is not an answer: {shortened(line.decode(errors='replace'), 90)}",
                )
                break
            with self._lock:
                done = process.waiting.pop(number, None)
            if done is not None:
                error = answer.get("error")
                done(answer if error is None else Refusal(shortened(str(error), 300)))
        status = process.popen.wait()
        reason = last_line(end_of(process.errors)) or "it printed no error"
        with self._lock:
            process.lost = process.lost or f"it ended with status {status}: {reason}"
        self._fail(process)

    def _fail(self, process: _Process) -> None:
        with self._lock:
            waiting, process.waiting = process.waiting, {}
        for done in waiting.values():
            done(HostLost(f"its process was lost ({process.lost})"))


def _end(process: _Process, reason: str) -> None:
    process.lost = process.lost or reason
    try:
        os.killpg(process.popen.pid, signal.SIGKILL)
    except ProcessLookupError:
        return


@cache
def host_of(hosted: Hosted) -> Host:
    """Return the host of an environment; there is one per process of ours."""
    host = Host(hosted)
    atexit.register(host.close)
    return host

"""Runners of an agent program: a process of its own for each episode, or a function in a thread.

Either is the user's own code, trusted like the recipe. It is given the task and the address of the policy; a process
gets them through these variables and one line of JSON on its standard input:

    OPENAI_BASE_URL, OPENAI_API_KEY, OPENAI_MODEL
    {"id": ..., "prompt": ..., "level": ..., "answer": only if the recipe reveals it}

Its result is a JSON object on the last line that it prints, or the function's return value: `reward`, `answer`,
`solved`, all of them optional.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import tempfile
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from models.agents.gateway.answers import MODEL
from models.base.errors import last_line, shortened
from models.base.finite import finite_of_json
from models.base.http_answers import loopback_direct
from models.base.user_code.contain import leaving

LONGEST_LINE = 65_536
"""Number of bytes at the end of a program's output in which its result is searched."""

Task = Mapping[str, Any]


class ProgramFailed(Exception):
    """Error for a program without a result; the message gives the reason."""


@dataclass(frozen=True)
class ProgramReport:
    """A program's report on its episode."""

    reward: float = 0.0
    answer: str | None = None
    solved: bool | None = None


class Running(Protocol):
    """Interface of a running program."""

    def stop(self) -> None:
        """End the program, if it has not ended."""
        ...


def outcome_of(result: Any) -> ProgramReport:
    """Parse the result of a program.

    Raises:
        ProgramFailed: it is not a valid result.
    """
    try:
        return _outcome(result)
    except ProgramFailed:
        raise
    except Exception as error:  # a function may return anything, such as an object that cannot be printed
        raise ProgramFailed(f"its result cannot be read ({type(error).__name__}: {error})") from None


def _outcome(result: Any) -> ProgramReport:
    if not isinstance(result, Mapping):
        raise ProgramFailed(f"its result is {shortened(repr(result))}, not an object with reward, answer or solved")
    reward, answer, solved = result.get("reward", 0.0), result.get("answer"), result.get("solved")
    try:
        finite_reward = finite_of_json(reward)
    except ValueError as error:
        raise ProgramFailed(f"its reward: {error}") from None
    if solved is not None and not isinstance(solved, bool):
        raise ProgramFailed(f"solved is {shortened(repr(solved))}, neither true nor false")
    return ProgramReport(finite_reward, None if answer is None else str(answer), solved)


class ProgramProcess:
    """A program that runs as a command, in a process group of its own."""

    def __init__(
        self, command: Sequence[str], task: Task, address: str, key: str, on_end: Callable[[Any], None]
    ) -> None:
        """Start the program.

        Args:
            command: the program and its arguments.
            task: task on its standard input.
            address: base address of the policy's server.
            key: key for the server.
            on_end: called once in another thread, with its result or with the reason that there is none.
        """
        self._task, self._on_end = json.dumps(task).encode(), on_end
        variables = {"OPENAI_BASE_URL": address, "OPENAI_API_KEY": key, "OPENAI_MODEL": MODEL}
        self._output, self._errors = tempfile.TemporaryFile(), tempfile.TemporaryFile()  # noqa: SIM115 - see _wait
        self._process = subprocess.Popen(
            list(command), stdin=subprocess.PIPE, stdout=self._output, stderr=self._errors, start_new_session=True,
            env={**os.environ, **loopback_direct(os.environ), **variables},
        )  # fmt: skip
        threading.Thread(target=self._wait, daemon=True).start()

    def stop(self) -> None:
        """End the program and all processes that it has started."""
        try:
            os.killpg(self._process.pid, signal.SIGKILL)
        except ProcessLookupError:
            return

    def _wait(self) -> None:
        try:
            self._process.communicate(self._task + b"\n")
        except OSError:  # it reads no input
            self._process.wait()
        try:
            self._on_end(self._result())
        finally:
            self._output.close()
            self._errors.close()

    def _result(self) -> Any:
        if self._process.returncode:
            last = last_line(end_of(self._errors)) or "it printed no error"
            return ProgramFailed(f"it ended with status {self._process.returncode}: {last}")
        lines = end_of(self._output).strip().splitlines()
        try:
            return json.loads(lines[-1]) if lines else ProgramFailed("it printed no result")
        except (ValueError, RecursionError):
            return ProgramFailed(f"the last line that it printed is not JSON: {shortened(lines[-1], 200)}")


def end_of(file: Any) -> str:
    """Return the end of a binary file, at most `LONGEST_LINE` bytes, as text."""
    size = file.seek(0, os.SEEK_END)
    file.seek(max(0, size - LONGEST_LINE))
    return str(file.read().decode("utf-8", "replace"))


class Function:
    """A program that runs as a function in a thread; if it never returns, it is abandoned and its requests refused."""

    def __init__(
        self, function: Callable[..., Any], task: Task, address: str, key: str, on_end: Callable[[Any], None], file: str
    ) -> None:
        """Start the thread: `function(task, base_url, api_key)`, from `file`. See `ProgramProcess`."""

        def run() -> None:
            try:
                with leaving(file):
                    result = function(dict(task), address, key)
            except Exception as error:  # the user's code may raise any exception
                result = ProgramFailed(f"{type(error).__name__}: {error}")
            on_end(result)

        threading.Thread(target=run, daemon=True).start()

    def stop(self) -> None:
        """Do nothing: a thread cannot be ended from outside."""

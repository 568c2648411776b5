"""How an agent program runs: a process of its own for each episode, or a function in a thread.

Either is a person's own code, trusted as the recipe is. It is given the task, and where it asks the policy; a process
by these and by one line of JSON on its standard input:

    OPENAI_BASE_URL, OPENAI_API_KEY, OPENAI_MODEL
    {"id": ..., "prompt": ..., "level": ..., "answer": only where the recipe tells it}

What it gives is a JSON object on the last line that it prints, or what the function returns: `reward`, `answer`,
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

from models.errors import shortened
from models.finite import finite_of_json
from models.gateway.server import MODEL
from models.http_answers import loopback_direct
from models.user_code.contain import leaving

LONGEST_LINE = 65_536
"""Bytes at the end of what a program prints in which its result is looked for."""

Task = Mapping[str, Any]


class ProgramFailed(Exception):
    """A program that gave no result; says why."""


@dataclass(frozen=True)
class Outcome:
    """What a program says of its episode."""

    reward: float = 0.0
    answer: str | None = None
    solved: bool | None = None


class Running(Protocol):
    """A program under way."""

    def stop(self) -> None:
        """End it, if it has not ended."""
        ...


def outcome_of(result: Any) -> Outcome:
    """A result as it was given.

    Raises:
        ProgramFailed: it is none.
    """
    try:
        return _outcome(result)
    except ProgramFailed:
        raise
    except Exception as error:  # a function may give anything, such as what cannot be written
        raise ProgramFailed(f"its result cannot be read ({type(error).__name__}: {error})") from None


def _outcome(result: Any) -> Outcome:
    if not isinstance(result, Mapping):
        raise ProgramFailed(f"its result is {shortened(repr(result))}, not an object with reward, answer or solved")
    reward, answer, solved = result.get("reward", 0.0), result.get("answer"), result.get("solved")
    try:
        worth = finite_of_json(reward)
    except ValueError as error:
        raise ProgramFailed(f"its reward: {error}") from None
    if solved is not None and not isinstance(solved, bool):
        raise ProgramFailed(f"solved is {shortened(repr(solved))}, neither true nor false")
    return Outcome(worth, None if answer is None else str(answer), solved)


class Process:
    """A command, in a process group of its own."""

    def __init__(
        self, command: Sequence[str], task: Task, address: str, key: str, ended: Callable[[Any], None]
    ) -> None:
        """Start it.

        Args:
            command: the program and its arguments.
            task: what it is told on its standard input.
            address: base address of the server that it asks.
            key: what it authenticates itself with.
            ended: called once with its result or with why there is none, in another thread.
        """
        self._task, self._ended = json.dumps(task).encode(), ended
        given = {"OPENAI_BASE_URL": address, "OPENAI_API_KEY": key, "OPENAI_MODEL": MODEL}
        self._said, self._failed = tempfile.TemporaryFile(), tempfile.TemporaryFile()  # noqa: SIM115 - closed in _wait
        self._process = subprocess.Popen(
            list(command), stdin=subprocess.PIPE, stdout=self._said, stderr=self._failed, start_new_session=True,
            env={**os.environ, **loopback_direct(os.environ), **given},
        )  # fmt: skip
        threading.Thread(target=self._wait, daemon=True).start()

    def stop(self) -> None:
        """End it and what it has started."""
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
            self._ended(self._result())
        finally:
            self._said.close()
            self._failed.close()

    def _result(self) -> Any:
        if self._process.returncode:
            last = _end_of(self._failed).strip().splitlines()[-1:] or ["it printed no error"]
            return ProgramFailed(f"it ended with status {self._process.returncode}: {shortened(last[0], 200)}")
        lines = _end_of(self._said).strip().splitlines()
        try:
            return json.loads(lines[-1]) if lines else ProgramFailed("it printed no result")
        except (ValueError, RecursionError):
            return ProgramFailed(f"the last line that it printed is no JSON: {shortened(lines[-1], 200)}")


def _end_of(file: Any) -> str:
    size = file.seek(0, os.SEEK_END)
    file.seek(max(0, size - LONGEST_LINE))
    return str(file.read().decode("utf-8", "replace"))


class Function:
    """A function in a thread; one that never returns is left behind, and what it asks is refused."""

    def __init__(
        self, function: Callable[..., Any], task: Task, address: str, key: str, ended: Callable[[Any], None], file: str
    ) -> None:
        """Start it: `function(task, base_url, api_key)`, from `file`. See `Process`."""

        def run() -> None:
            try:
                with leaving(file):
                    result = function(dict(task), address, key)
            except Exception as error:  # whatever a person's own code raises
                result = ProgramFailed(f"{type(error).__name__}: {error}")
            ended(result)

        threading.Thread(target=run, daemon=True).start()

    def stop(self) -> None:
        """Nothing ends a thread from outside."""

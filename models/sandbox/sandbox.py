"""The sandbox, from outside: it takes programs and returns verdicts and printed output.

    this process  ->  judges' fork server  ->  judge, who knows the tests  ->  programs' fork server  ->  program

A worker is a pair of fork servers, and runs one program at a time. Whatever a program does, its worker answers within
the limits, or is ended and started again.
"""

from __future__ import annotations

import contextlib
import logging
import os
import secrets
import socket
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, TypeVar

from models.base.errors import UserError, shortened
from models.sandbox.fork_servers import ForkServer, Kind, Layers, NotStarted, start
from models.sandbox.inside import wire
from models.sandbox.interface import Outcome, Program, ProgramRunner, ProgramVerdict, Ran
from models.sandbox.settings import SandboxSettings

__all__ = ["Outcome", "Program", "ProgramRunner", "ProgramVerdict", "Ran", "Sandbox", "Worker"]

_LOG = logging.getLogger("rewardflow.sandbox")
_GRACE = 3.0
"""Seconds beyond its limits after which a worker is given up."""

Item = TypeVar("Item")
Result = TypeVar("Result")


@dataclass
class Worker:
    """A pair of fork servers, of programs and of judges."""

    programs: ForkServer
    judges: ForkServer

    @classmethod
    def start(cls, kind: Kind, settings: SandboxSettings, namespaces: bool) -> Worker:
        programs = start(kind, settings, namespaces=namespaces)
        try:
            judges = start("judge", settings, namespaces=namespaces, programs=programs.control)
        except NotStarted:
            programs.close()
            raise
        programs.control.close()  # judges alone reach it
        return cls(programs, judges)

    @property
    def layers(self) -> Layers:
        return self.programs.layers

    @property
    def runs(self) -> bool:
        """Whether both of its fork servers run."""
        return self.programs.process.poll() is None and self.judges.process.poll() is None

    def ask(self, request: Mapping[str, Any], seconds: float) -> dict[str, Any] | None:
        """Return the judge's answer; None if the judge was ended, which happens only if it took too long."""
        nonce = secrets.token_hex(16)
        mine, theirs = socket.socketpair()
        with mine:
            with theirs:
                socket.send_fds(self.judges.control, [b"a"], [theirs.fileno()])
            mine.settimeout(seconds + _GRACE)
            wire.send(mine, {**request, "nonce": nonce, "wall": seconds})
            try:
                answer = wire.receive(mine)
            except EOFError:
                return None
        if not isinstance(answer, dict) or answer.get("nonce") != nonce:
            raise wire.Malformed("an answer without a request")
        return answer

    def close(self) -> None:
        self.judges.close()
        self.programs.close()


@dataclass
class Sandbox:
    """Runner of untrusted programs. May be used from several threads."""

    settings: SandboxSettings = field(default_factory=SandboxSettings)
    compilers: bool = False
    """Whether programs may start others: compilers, and their output."""
    namespaces: bool = True
    """Whether namespaces are used if this machine has them."""

    def __post_init__(self) -> None:
        self._idle: list[Worker] = []
        self._places = threading.Semaphore(self.workers)
        self._lock = threading.Lock()

    @property
    def workers(self) -> int:
        """Number of programs that run in parallel."""
        return self.settings.workers or len(os.sched_getaffinity(0))

    @property
    def layers(self) -> Layers:
        """Layers that hold programs here.

        Raises:
            UserError: the layers do not suffice, and that is not accepted.
        """
        with self._worker() as worker:
            return worker.layers

    def judge(self, programs: Sequence[Program]) -> list[ProgramVerdict]:
        """Run each program under its tests and return the verdicts, [programs].

        Raises:
            UserError: this machine has too few layers, and that is not accepted.
        """
        return self._side_by_side(self._judge_program, programs)

    def script(self, source: str) -> Ran:
        """Run a program as a script, with nothing on its standard input; raises as `judge` does."""
        return self._run_request({"kind": "script", "source": source})

    def scripts(self, sources: Sequence[str]) -> list[Ran]:
        """Run programs as `script` does, in parallel, [programs]; raises as `judge` does."""
        return self._side_by_side(self.script, sources)

    def command(self, words: Sequence[str], files: Mapping[str, str]) -> Ran:
        """Run a command in a folder that holds `files`, by name; raises as `judge` does.

        Args:
            words: the command and its arguments.
            files: text by name; a name has no folders.
        """
        if not self.compilers:
            raise ValueError("only a sandbox for compilers runs commands")
        if wrong := [name for name in files if os.path.basename(name) != name or name in ("", ".", "..")]:
            raise ValueError(f"{wrong[0]!r} is not a plain file name")
        return self._run_request({"kind": "command", "words": list(words), "files": dict(files)})

    def commands(self, runs: Sequence[tuple[Sequence[str], Mapping[str, str]]]) -> list[Ran]:
        """Run commands, each with its files, as `command` does, in parallel, [commands]; raises as `judge` does."""
        return self._side_by_side(lambda run: self.command(*run), runs)

    def close(self) -> None:
        """End the workers that are idle."""
        with self._lock:
            idle, self._idle = self._idle, []
        for worker in idle:
            worker.close()

    def _side_by_side(self, call: Callable[[Item], Result], items: Sequence[Item]) -> list[Result]:
        if len(items) < 2 or self.workers == 1:
            return [call(item) for item in items]
        pool = ThreadPoolExecutor(min(self.workers, len(items)), "sandbox")
        try:
            return list(pool.map(call, items))
        finally:
            pool.shutdown(wait=False, cancel_futures=True)

    def _judge_program(self, program: Program) -> ProgramVerdict:
        limits = self.settings
        request = {
            "kind": "tests",
            "source": _text(program.source),
            "tests": _text(program.tests),
            "entry_point": program.entry_point,
            "prompt": _text(program.prompt),
            "counted": program.counted,
            "seconds": limits.seconds,
            "seconds_together": limits.seconds_together,
        }
        try:
            answer = self._ask_worker(request, limits.seconds_together + 1)
        except wire.TooLong as error:
            return ProgramVerdict("failed", 0, 0, str(error))
        if answer is None:
            return ProgramVerdict("failed", 0, 0, "the judge's time was over")
        cases, passed = int(answer["cases"]), int(answer["passed"])
        outcome: Outcome
        if answer.get("useless"):
            outcome = "useless_tests"
        elif answer.get("uncompilable"):
            outcome = "uncompilable"
        elif passed == cases:
            outcome = "passed"
        else:
            outcome = "failed" if int(answer["faults"]) == cases else "partly"
        counts = int(answer.get("steps", 0)), int(answer.get("lines", 0))
        return ProgramVerdict(outcome, passed, cases, shortened(str(answer["why"]), 200), *counts)

    def _run_request(self, request: Mapping[str, Any]) -> Ran:
        seconds = self.settings.seconds
        try:
            answer = self._ask_worker(
                {**request, "seconds": seconds, "longest": self.settings.output_kb << 10}, seconds + 2
            )
        except wire.TooLong as error:
            return Ran("", str(error), None, False, False)
        if answer is None:
            return Ran("", "", None, False, True)
        return Ran(answer["output"], answer["errors"], answer["status"], answer["cut"], answer["late"])

    def _ask_worker(self, request: Mapping[str, Any], seconds: float) -> dict[str, Any] | None:
        for attempt in range(2):
            with self._worker() as worker:
                try:
                    return worker.ask(request, seconds)
                except TimeoutError:
                    worker.close()
                    return None
                except (OSError, wire.Malformed) as error:
                    worker.close()
                    if attempt:
                        raise UserError(f"sandbox: a worker fails again and again ({error})") from error
        raise AssertionError("returned or raised by now")

    @contextlib.contextmanager
    def _worker(self) -> Iterator[Worker]:
        """Yield a worker for one program. A worker that is not in order afterwards is ended."""
        with self._places:
            with self._lock:
                worker = self._idle.pop() if self._idle else None
            if worker is not None and not worker.runs:
                worker.close()
                worker = None
            worker = worker or self.start_worker()
            healthy = False
            try:
                yield worker
                healthy = worker.judges.control.fileno() >= 0
            finally:
                if healthy:
                    with self._lock:
                        self._idle.append(worker)
                else:
                    worker.close()

    def start_worker(self) -> Worker:
        """Start a worker with the layers that this machine has; raises as `layers` does."""
        kind: Kind = "compiler" if self.compilers else "program"
        reason = "not requested"
        if self.namespaces:
            try:
                return self._accept_worker(Worker.start(kind, self.settings, namespaces=True), "")
            except NotStarted as error:
                reason = str(error)
        if self.compilers:
            raise UserError(f"sandbox: compilers need namespaces, which cannot be had here ({shortened(reason, 200)})")
        try:
            return self._accept_worker(Worker.start(kind, self.settings, namespaces=False), reason)
        except NotStarted as error:
            raise UserError(f"sandbox: its fork server does not start ({shortened(str(error), 200)})") from None

    def _accept_worker(self, worker: Worker, reason: str) -> Worker:
        layers = worker.layers
        if not layers.enough and not self.settings.unprotected:
            worker.close()
            raise UserError(
                f"sandbox: nothing here can hold a program: {layers.line} (namespaces: {shortened(reason, 120)}); run "
                "where bubblewrap or Landlock works, or accept the risk with sandbox.unprotected: true"
            )
        _log_layers(layers, reason)
        return worker


def _text(text: str) -> str:
    """Return the text without unpaired surrogates, which no file of a program contains."""
    return text.encode("utf-8", "replace").decode()


@lru_cache(maxsize=16)
def _log_layers(layers: Layers, reason: str) -> None:
    """Log once for each process which layers hold programs; log an error if they do not suffice."""
    if not layers.enough:
        _LOG.error(
            "!!! UNPROTECTED: programs that a model wrote run with YOUR rights on this machine (%s), because "
            "sandbox.unprotected is true !!!",
            layers.line,
        )
    elif not layers.namespaces:
        _LOG.warning("sandbox: no namespaces (%s): held by %s, without a scratch folder", reason, layers.line)
    elif not (layers.landlock and layers.seccomp):
        _LOG.warning("sandbox: held by %s", layers.line)

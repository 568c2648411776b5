"""The judge: it has the tests, calls the program over a socket, and decides.

The judge is jailed too, because the tests come from a file, and it can be ended at any moment. The program sees only
inputs. Every call is answered by plain data with the number of that call, and every case by a new child, so that no
state is carried from one case to the next.
"""

from __future__ import annotations

import builtins
import contextlib
import os
import random
import select
import socket
import time
from dataclasses import dataclass, field
from types import CodeType
from typing import Any, NoReturn

from models.sandbox.inside import wire
from models.sandbox.inside.cases import CANDIDATE, UselessTests, cases_of
from models.sandbox.inside.program import LONGEST


class Fault(BaseException):
    """The program gave no answer. No `except Exception` of the tests catches it."""


class ProgramError(Exception):
    """Replacement for an exception of the program that is not one of Python's built-in exceptions."""


@dataclass
class _Case:
    """State of a case while it runs."""

    program: socket.socket | None = None
    """Connection to the child that answers it."""
    asks: int = 0
    fault: str = ""
    """Reason why the program gave no answer, or the exception it raised; empty if it always answered."""
    broken: bool = False
    """Whether it failed in a way that no test may expect: timeout, death, a forged answer."""


@dataclass(repr=False)  # tests may print what they are given, and none of this is for them
class Judge:
    """Runner of the cases of one program."""

    programs: socket.socket
    """Connection to the fork server of the programs."""
    request: dict[str, Any]
    deadline: float
    """Time at which all must be over, on the clock of time.monotonic."""
    uncompilable: bool = False
    case: _Case = field(default_factory=_Case)
    steps: int = 0
    """Steps of the program, over all calls that it answered, if they are counted."""
    lines: set[int] = field(default_factory=set)
    """Lines of the program in which the steps were taken."""

    def verdict(self) -> dict[str, Any]:
        """Run the cases; return how many passed, and why others did not."""
        try:
            cases = cases_of(self.request["tests"], self.request["entry_point"])
        except UselessTests as error:
            return {"cases": 0, "passed": 0, "faults": 0, "why": str(error), "useless": True}
        helpers = _helpers(self.request["prompt"])
        random.SystemRandom().shuffle(cases)
        passed, faults, why, asks = 0, 0, "", 0
        for code in cases:
            reason = self._run(code, helpers)
            asks += self.case.asks
            passed += not reason
            faults += bool(reason and self.case.fault)
            why = why or reason
            if self.uncompilable:
                return {"cases": len(cases), "passed": 0, "faults": len(cases), "why": reason, "uncompilable": True}
        useless = asks == 0 and time.monotonic() < self.deadline
        verdict = {"cases": len(cases), "passed": passed, "faults": faults, "why": why, "useless": useless}
        return verdict | {"steps": self.steps, "lines": len(self.lines)}

    def _run(self, code: CodeType, helpers: CodeType | None) -> str:
        """Run a case and return why it failed, empty if it passed. It fails if it never calls the program."""
        self.case = _Case()
        names: dict[str, Any] = {"__name__": "tests"}
        try:
            if helpers is not None:
                exec(helpers, names)
        except Exception:  # it only looked like Python
            names = {"__name__": "tests"}

        def call_program(*arguments: Any, **named: Any) -> Any:
            return self._ask(*arguments, **named)  # a bound method would reveal the judge in its text

        names |= {CANDIDATE: call_program, self.request["entry_point"]: call_program}
        try:
            exec(code, names)
        except (Fault, Exception) as error:
            wrong = type(error) is AssertionError and not self.case.fault
            return self.case.fault or ("wrong" if wrong else f"{type(error).__name__}: {str(error)[:LONGEST]}")
        finally:
            if self.case.program is not None:
                self.case.program.close()
        if self.case.broken:
            return self.case.fault
        return "" if self.case.asks else "the tests ask the program nothing"

    def _ask(self, *arguments: Any, **named: Any) -> Any:
        """Call the program's function; return its result or raise its exception."""
        self.case.asks += 1
        nonce = os.urandom(16).hex()
        ask = {"arguments": wire.pack(list(arguments)), "named": wire.pack(named), "nonce": nonce}
        answer = self._answer(ask)
        if not isinstance(answer, dict) or answer.get("nonce") != nonce:
            raise self._broken("an answer without a request")
        if "error" in answer:
            raise self._error(answer)
        if self.request.get("counted"):
            self._count(answer)
        try:
            return wire.unpack(answer.get("value"))
        except wire.Malformed as error:
            raise self._broken(str(error)) from None

    def _count(self, answer: dict[str, Any]) -> None:
        steps, lines = answer.get("steps"), answer.get("lines")
        if not isinstance(steps, int) or not isinstance(lines, list) or not all(isinstance(n, int) for n in lines):
            raise self._broken("an answer without its counts")
        self.steps += steps
        self.lines.update(lines)

    def _answer(self, ask: dict[str, Any]) -> Any:
        began = time.monotonic()
        seconds_left = min(self.request["seconds"], self.deadline - began)
        if self.case.broken or seconds_left <= 0:
            raise self._broken(self.case.fault or "out of time")
        try:
            if self.case.program is None:
                self.case.program = self._begin()
            self.case.program.settimeout(seconds_left)
            wire.send(self.case.program, ask)
            return wire.receive(self.case.program)
        except TimeoutError:
            raise self._broken("out of time") from None
        except (EOFError, OSError):
            raise self._broken("the program's process ended") from None
        except wire.Malformed as error:
            raise self._broken(str(error)) from None

    def _begin(self) -> socket.socket:
        """Start a new child that has the program and waits for calls."""
        mine, theirs = socket.socketpair()
        with theirs:
            socket.send_fds(self.programs, [b"a"], [theirs.fileno()])
        mine.settimeout(self.request["seconds"])
        names = {key: self.request[key] for key in ("source", "counted")} | {"name": self.request["entry_point"]}
        wire.send(mine, {"kind": "call", "wall": max(0.0, self.deadline - time.monotonic()), **names})
        return mine

    def _broken(self, reason: str) -> Fault:
        self.case.fault, self.case.broken = reason, True
        return Fault(reason)

    def _error(self, answer: dict[str, Any]) -> BaseException:
        name, message = str(answer["error"])[:LONGEST], str(answer.get("message", ""))[:LONGEST]
        line = f"{name}: {message}".rstrip(": ")
        self.uncompilable |= answer.get("stage") == "compile"
        if answer.get("stage") != "call":
            return self._broken(line)
        self.case.fault = line
        known = getattr(builtins, name, None)
        if isinstance(known, type) and issubclass(known, Exception):
            with contextlib.suppress(Exception):
                return known(message)
        return ProgramError(line)


def _helpers(prompt: str) -> CodeType | None:
    """Compile the prompt's definitions, which tests may use; None if the prompt is not valid Python."""
    try:
        return compile(prompt, "<prompt>", "exec")
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def watch(programs: socket.socket, request: dict[str, Any]) -> dict[str, Any]:
    """Run a script or a command and read its output: `output`, `errors`, `status`, `cut`, `late`.

    Args:
        programs: connection to the fork server of the programs.
        request: request with `seconds`, its time limit, and `longest`, the limit of its output in bytes.
    """
    deadline = time.monotonic() + request["seconds"]
    pairs = [socket.socketpair() for _ in range(3)]
    (end, _), (out, _), (errors, _) = pairs
    socket.send_fds(programs, [b"a"], [theirs.fileno() for _, theirs in pairs])
    for _, theirs in pairs:
        theirs.close()
    end.settimeout(request["seconds"] + 1)
    wire.send(end, request | {"wall": request["seconds"]})
    read: dict[socket.socket, bytearray] = {out: bytearray(), errors: bytearray()}
    open_ones, longest = [out, errors], request["longest"]
    while open_ones and len(read[out]) <= longest:
        ready = select.select(open_ones, [], [], max(0.0, deadline + 0.5 - time.monotonic()))[0]
        if not ready:
            break
        for connection in ready:
            part = connection.recv(1 << 16)
            if not part:
                open_ones.remove(connection)
            read[connection] += part[: longest + 1 - len(read[connection])]
    cut = len(read[out]) > longest
    status = None
    if not cut:
        try:
            status = wire.receive(end)["status"]
        except (EOFError, OSError):
            pass
    return {
        "output": read[out][:longest].decode("utf-8", "replace"),
        "errors": read[errors][:longest].decode("utf-8", "replace"),
        "status": status,
        "cut": cut,
        "late": time.monotonic() >= deadline,
    }


def run(connection: socket.socket, programs: socket.socket, request: dict[str, Any]) -> NoReturn:
    """Run the request, send the answer and end."""
    if request["kind"] == "tests":
        answer = Judge(programs, request, time.monotonic() + request["seconds_together"]).verdict()
    else:
        answer = watch(programs, request)
    wire.send(connection, answer | {"nonce": request["nonce"]})
    os._exit(0)

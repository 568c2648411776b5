"""Work of a jailed child: answer calls of a program, run it as a script, or run a command."""

from __future__ import annotations

import os
import random
import sys
from types import ModuleType
from typing import Any, NoReturn, TextIO

from models.sandbox.inside import wire
from models.sandbox.inside.counting import CallCounts

LONGEST = 300
"""Largest number of characters of an exception's message."""
_FILE = "<program>"


def run(request: dict[str, Any], scratch: str) -> NoReturn:
    """Run the request and end the process; file 3, for scripts and commands also file 4, is a connection to the caller.

    Args:
        request: `kind` and the keys that belong to it.
        scratch: folder that may be written to, if there is one.
    """
    if scratch:
        os.chdir(scratch)
        os.environ.update(HOME=scratch, TMPDIR=scratch)
    random.seed(0)
    if request["kind"] == "call":
        _call(request)
    os.dup2(3, 1)
    os.dup2(4, 2)
    os.closerange(3, 16)
    if request["kind"] == "command":
        _command(request, scratch)
    _script(request)


def _call(request: dict[str, Any]) -> NoReturn:
    """Load the program and answer calls of one of its functions. Every answer carries the number of its call."""
    stage, module, broken = "compile", _module("program"), None
    counted, loading = request.get("counted", False), CallCounts(_FILE)
    try:
        code = compile(request["source"], _FILE, "exec")
        stage = "load"
        if counted:
            loading.load(code, module.__dict__)
        else:
            exec(code, module.__dict__)
    except BaseException as error:
        broken = error
    while True:
        try:
            ask = wire.receive(_Connection())
        except EOFError:
            os._exit(0)
        try:
            if broken is not None:
                raise broken
            stage = "call"
            arguments, named = wire.unpack(ask["arguments"]), wire.unpack(ask["named"])
            function, counts = getattr(module, request["name"]), CallCounts(_FILE)
            result = counts.call(function, arguments, named) if counted else function(*arguments, **named)
            reply = {"nonce": ask["nonce"], "value": wire.pack(result)}
            steps = counts.steps + loading.steps
            data = wire.framed(reply | ({"steps": steps, "lines": sorted(counts.lines)} if counted else {}))
            loading.steps = 0
        except BaseException as error:
            reply = {
                "nonce": ask["nonce"],
                "stage": stage,
                "error": type(error).__name__,
                "message": _message_of(error),
            }
            data = wire.framed(reply)
        while data:
            data = data[os.write(3, data) :]


class _Connection:
    """File 3 as a connection, for a process that may not make the system calls of a socket."""

    def recv(self, most: int) -> bytes:
        return os.read(3, most)


def _script(request: dict[str, Any]) -> NoReturn:
    """Run the program as a script; its output is sent as it is printed."""
    sys.stdout, sys.stderr = _printer(1), _printer(2)
    sys.argv = ["program.py"]
    status = 0
    try:
        exec(compile(request["source"], _FILE, "exec"), _module("__main__").__dict__)
    except SystemExit as leaving:
        status = 1 if leaving.code else 0
    except BaseException as error:
        status = 1
        print(f"{_line(error)}{type(error).__name__}: {_message_of(error)}".rstrip(": "), file=sys.stderr)
    sys.stdout.flush()
    os._exit(status)


def _command(request: dict[str, Any], scratch: str) -> NoReturn:
    for name, text in request["files"].items():
        with open(os.path.join(scratch, name), "w", encoding="utf-8") as file:
            file.write(text)
    words = request["words"]
    try:
        path = os.environ.get("PATH", "/usr/bin:/bin")
        os.execvpe(words[0], words, {"PATH": path, "HOME": scratch, "TMPDIR": scratch, "LANG": "C.UTF-8"})
    except OSError as error:
        print(f"{words[0]}: {error.strerror}", file=sys.stderr, flush=True)
    os._exit(127)


def _printer(file: int) -> TextIO:
    return open(file, "w", buffering=1, encoding="utf-8", errors="backslashreplace", closefd=False)


def _module(name: str) -> ModuleType:
    module = ModuleType(name)
    sys.modules[name] = module  # dataclasses and the like look their module up
    return module


def _message_of(error: BaseException) -> str:
    try:
        return str(error)[:LONGEST]
    except BaseException:
        return ""


def _line(error: BaseException) -> str:
    """Return the last line of the program that the error passed through."""
    number = error.lineno if isinstance(error, SyntaxError) else None
    place = error.__traceback__
    while place is not None:
        if place.tb_frame.f_code.co_filename == _FILE:
            number = place.tb_lineno
        place = place.tb_next
    return f"line {number}: " if number else ""

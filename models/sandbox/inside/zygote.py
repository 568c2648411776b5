"""A fork server: for every request it starts a jailed child, which does the work and is ended.

A request is one byte with open files on the control connection; the request itself comes over the first of these files.
The child is killed when its time is over, when the caller has gone, or when too many processes run. No untrusted code
runs in this process itself.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import os
import select
import shutil
import signal
import socket
import sys
import time
from dataclasses import dataclass
from typing import Any

from models.sandbox.inside import judge, kernel, landlock, program, wire
from models.sandbox.inside.jail import Jail

_LOADED = (
    "array bisect cmath collections copy dataclasses datetime decimal enum fractions functools hashlib heapq inspect "
    "io itertools json math numbers operator pprint queue random re statistics string struct textwrap threading time "
    "traceback types typing unicodedata"
).split()
"""Modules that many programs import: loaded once, and present in every child."""
_HUNG_UP = select.POLLHUP | select.POLLERR
_LOOK_EVERY = 0.02
"""Seconds between two counts of the running processes."""
_BEHIND_THE_SERVER = 19
"""Niceness of children that may start processes: the server that counts and ends them has priority over them."""


@dataclass
class ZygoteServer:
    """State of the fork server."""

    role: str
    control: socket.socket
    jail: Jail
    scratch: str
    """Folder for one child at a time; empty: children cannot write."""
    most: int | None
    """Largest number of processes of a child that may start some; this server is then the first of its namespace."""
    programs: socket.socket | None
    """The judges' connection to the fork server of the programs."""

    def serve(self) -> None:
        """Take requests until the other side has gone."""
        while True:
            try:
                byte, files, _, _ = socket.recv_fds(self.control, 1, 4)
            except OSError:
                return
            if not byte:
                return
            connections = [socket.socket(fileno=file) for file in files]
            try:
                connections[0].settimeout(10)
                request = wire.receive(connections[0])
                connections[0].settimeout(None)
            except (EOFError, OSError, wire.Malformed, IndexError):
                request = None
            gone = request is not None and self._child(connections, request)
            for connection in connections:
                connection.close()
            if gone:
                return

    def _child(self, connections: list[socket.socket], request: dict[str, Any]) -> bool:
        """Run a child to its end; return whether the other side of the control connection has gone during the run."""
        parent = os.getpid()
        child = os.fork()
        if child == 0:
            try:
                self._be_child(parent, connections, request)
            finally:
                os._exit(70)
        others = connections[1:]
        for connection in others:
            connection.close()
        gone = self._wait(child, connections[0], time.monotonic() + float(request["wall"]))
        status = self._end(child)
        self._clean()
        if others:
            with contextlib.suppress(OSError):
                wire.send(connections[0], {"status": status})
        return gone

    def _be_child(self, parent: int, connections: list[socket.socket], request: dict[str, Any]) -> None:
        kernel.die_with_parent(parent)
        if self.programs is not None:
            self.jail.enter([connections[0].fileno(), self.programs.fileno()])
            judge.run(socket.socket(fileno=3), socket.socket(fileno=4), request)
        if self.most is not None:
            os.nice(_BEHIND_THE_SERVER)
        own = connections[1:] or connections
        self.jail.enter([connection.fileno() for connection in own])
        program.run(request, self.scratch)

    def _wait(self, child: int, asking: socket.socket, deadline: float) -> bool:
        process = os.pidfd_open(child)
        poll = select.poll()
        poll.register(process, select.POLLIN)
        poll.register(asking, 0)
        poll.register(self.control, 0)
        try:
            while (left := deadline - time.monotonic()) > 0:
                if self.most is not None:
                    left = min(left, _LOOK_EVERY)
                events = dict(poll.poll(left * 1000))
                if events:
                    return bool(events.get(self.control.fileno(), 0) & _HUNG_UP)
                if self.most is not None and _processes() > self.most:
                    break
            return False
        finally:
            os.close(process)

    def _end(self, child: int) -> int:
        """Kill a child with all that it started; return how the child ended, in the convention of subprocess."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL)
        if self.most is None:
            return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        with contextlib.suppress(ProcessLookupError):
            os.kill(-1, signal.SIGKILL)  # as the first process of its namespace: every other of it, and none outside
        status = 0
        with contextlib.suppress(ChildProcessError):
            while True:  # orphans too become children of the first process
                ended, how = os.waitpid(-1, 0)
                status = how if ended == child else status
        return os.waitstatus_to_exitcode(status)

    def _clean(self) -> None:
        if not self.scratch:
            return
        for entry in os.scandir(self.scratch):
            if entry.is_dir(follow_symlinks=False):
                shutil.rmtree(entry.path, ignore_errors=True)
            else:
                os.unlink(entry.path)


def _processes() -> int:
    """Return the number of processes in this namespace, the first not counted."""
    return sum(name.isdigit() for name in os.listdir("/proc")) - 1


def main(text: str) -> None:
    """Report the available layers, then serve.

    Args:
        text: settings as JSON (`models.sandbox.fork_servers`).
    """
    settings = json.loads(text)
    sys.path[:] = [path for path in sys.path if path != settings["code"]]
    kernel.die_first()
    kernel.not_dumpable()
    for module in _LOADED:
        importlib.import_module(module)
    scratch = settings["scratch"]
    jail = Jail.prepare(settings["kind"], settings["readable"], [scratch] if scratch else [], settings["limits"])
    programs = settings["programs"]
    server = ZygoteServer(
        settings["kind"],
        socket.socket(fileno=settings["control"]),
        jail,
        scratch,
        settings["most"],
        None if programs is None else socket.socket(fileno=programs),
    )
    if settings["most"] is not None and os.getpid() != 1:
        raise SystemExit("a fork server whose children start processes must be the first of its namespace")
    wire.send(
        server.control,
        {"landlock": 0 if jail.rules is None else landlock.version(), "seccomp": jail.filter is not None},
    )
    gc.collect()
    gc.freeze()
    server.serve()

"""The sandbox in containers: a second runner, with docker or podman.

    this process  <- bridge ->  container of the judges     (knows the tests)
                  <- bridge ->  container of the programs   (knows the inputs of one call)

A worker is a pair of containers, which stay until the sandbox is closed. In each, a fork server runs as in the local
sandbox and forks a jailed child for every request. The fork server's code and all data come over the container's
standard input: no folder of this machine is mounted. If a worker exceeds its time, the containers are killed.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import select
import socket
import subprocess
import tempfile
import threading
import time
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import IO

from models.base.errors import UserError, shortened
from models.sandbox.engines import EngineFault, ask_engine, check_image, choose_engine, error_line
from models.sandbox.fork_servers import INSIDE, OF_COMPILERS, ForkServer, Kind, Layers, NotStarted, settings_of
from models.sandbox.inside import wire
from models.sandbox.inside.bridge import SocketBridge
from models.sandbox.sandbox import Sandbox, Worker
from models.sandbox.settings import IMAGE, SandboxSettings

_START = 120.0
"""Seconds that a container may take to start."""
_END = 2.0
"""Seconds that a container may take to end by itself before it is killed."""
_USER = "65534:65534"
_SCRATCH = "/rewardflow-scratch"
"""A folder that no image has: the mode of an image's own folder would replace that of the mount."""
_OVERHEAD_MB = 128
"""Memory of a container beyond a program's and its files': that of the fork server."""
_PROCESSES = 12
"""Processes of a container beyond those of a program."""
_LOADER = """
import importlib.abc, importlib.util, json, os, sys
def read(length):
    data = b""
    while len(data) < length:
        part = os.read(0, length - len(data))
        if not part:
            raise SystemExit("its code did not arrive")
        data += part
    return data
sources = json.loads(read(int.from_bytes(read(4), "little")))
class Sources(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def find_spec(self, name, path=None, target=None):
        if name in sources:
            return importlib.util.spec_from_loader(name, self, is_package=sources[name] is None)
    def exec_module(self, module):
        exec(compile(sources[module.__name__] or "", f"<{module.__name__}>", "exec"), module.__dict__)
sys.meta_path.insert(0, Sources())
from models.sandbox.inside.contained import main
main(sys.argv[1])
"""
"""First program of a container: it reads the code of the fork server from standard input and starts it."""


class ContainerSandbox(Sandbox):
    """Runner of untrusted programs in containers. May be used from several threads."""

    @cached_property
    def engine(self) -> str:
        """Program that runs the containers.

        Raises:
            UserError: there is none that answers, or it lacks the image.
        """
        engine = choose_engine(self.settings.engine)
        check_image(engine, self.settings.image or IMAGE)
        return engine

    def start_worker(self) -> Worker:
        """Start a pair of containers; raises as `layers` does."""
        kinds: tuple[Kind, Kind] = ("compiler" if self.compilers else "program", "judge")
        started = [_Start.begin(self.engine, kind, self.settings) for kind in kinds]
        servers: list[ContainedServer] = []
        try:
            for start in started:
                servers.append(start.finish(servers[0].control if servers else None))
        except NotStarted as error:
            for server in servers:
                server.close()
            for start in started[len(servers) :]:
                start.abandon()
            raise UserError(
                f"sandbox.runner: {self.engine} does not start a container of {self.settings.image or IMAGE} "
                f"({shortened(error, 200)})"
            ) from None
        return Worker(*servers)


@dataclass
class ContainedServer(ForkServer):
    """A fork server in a container."""

    engine: str = ""
    name: str = ""

    def close(self) -> None:
        """End the container: let it end by itself, or else kill it."""
        self.control.close()
        try:
            self.process.wait(_END)
        except subprocess.TimeoutExpired:
            _remove(self.engine, self.name)
            self.process.kill()
            self.process.wait()


@dataclass
class _Start:
    """A container that starts."""

    engine: str
    name: str
    image: str
    process: subprocess.Popen[bytes]
    reads: int
    writes: int
    """Open files of the container's output and input."""
    errors: IO[bytes]

    @classmethod
    def begin(cls, engine: str, kind: Kind, settings: SandboxSettings) -> _Start:
        """Start the engine's client, and pass it the code of the fork server."""
        name, image = f"rewardflow-sandbox-{secrets.token_hex(8)}", settings.image or IMAGE
        (their_input, writes), (reads, their_output) = os.pipe(), os.pipe()
        errors = tempfile.TemporaryFile()  # noqa: SIM115 - it stays open until the container has started
        process = subprocess.Popen(
            container_command(engine, name, kind, settings),
            stdin=their_input,
            stdout=their_output,
            stderr=errors,
            cwd="/",
            start_new_session=True,
        )
        os.close(their_input)
        os.close(their_output)
        return cls(engine, name, image, process, reads, writes, errors)

    def finish(self, programs: socket.socket | None) -> ContainedServer:
        """Wait until the fork server reports its layers, and bridge its connections.

        Args:
            programs: for judges: the control connection of the programs' fork server.

        Raises:
            NotStarted: the container ends, or does not answer.
        """
        try:
            streams = _Streams(self.reads, self.writes, time.monotonic() + _START)
            streams.send(_code())
            report = wire.receive(streams)
            layers = Layers(True, int(report["landlock"]), bool(report["seccomp"]), f"{self.engine}, {self.image}")
        except (EOFError, OSError, wire.Malformed, TypeError, KeyError, ValueError) as error:
            raise NotStarted(self._reason(error)) from None
        self.errors.close()
        mine, theirs = socket.socketpair()
        bridge = SocketBridge(self.reads, self.writes, gives=theirs, takes=programs)
        threading.Thread(target=bridge.carry, name="sandbox bridge", daemon=True).start()
        return ContainedServer(self.process, mine, layers, self.engine, self.name)

    def abandon(self) -> None:
        """End the container."""
        for file in (self.reads, self.writes):
            os.close(file)
        if self.process.poll() is None:
            _remove(self.engine, self.name)
            self.process.kill()
        self.process.wait()
        self.errors.close()

    def _reason(self, error: Exception) -> str:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(_END)
        self.errors.seek(0)
        return error_line(self.errors.read().decode("utf-8", "replace")) or f"no report: {type(error).__name__}"


@dataclass(frozen=True)
class _Streams:
    """Output and input of a container that starts, until a deadline."""

    reads: int
    writes: int
    deadline: float

    def recv(self, most: int, /) -> bytes:
        """Return at most so many bytes of the output; none at its end."""
        self._wait(self.reads, select.POLLIN)
        return os.read(self.reads, most)

    def send(self, data: bytes) -> None:
        """Write to the input."""
        os.set_blocking(self.writes, False)
        while data:
            self._wait(self.writes, select.POLLOUT)
            data = data[os.write(self.writes, data) :]

    def _wait(self, file: int, event: int) -> None:
        poll = select.poll()  # `select` refuses the files of a process that has over 1,024 open
        poll.register(file, event)
        if not poll.poll(1000 * max(0.0, self.deadline - time.monotonic())):
            raise TimeoutError


def container_command(engine: str, name: str, kind: Kind, settings: SandboxSettings) -> list[str]:
    """Return the command line that runs a fork server in a container.

    Args:
        engine: docker or podman.
        name: name of the container.
        kind: kind of the fork server's children.
        settings: their limits, and the image.
    """
    scratch_mb = 0 if kind == "judge" else settings.scratch_mb
    memory = f"{settings.memory_mb + scratch_mb + _OVERHEAD_MB}m"
    words = [engine, "run", "--rm", "--interactive", "--name", name, "--pull", "never", "--log-driver", "none"]
    words += ["--network", "none", "--ipc", "none", "--hostname", "jail", "--user", _USER, "--workdir", "/"]
    words += ["--read-only", "--cap-drop", "ALL", "--security-opt", "no-new-privileges"]
    words += ["--memory", memory, "--memory-swap", memory, "--cpus", "1"]
    words += ["--pids-limit", str(settings.processes + _PROCESSES)]
    if engine == "podman":
        words.append("--read-only-tmpfs=false")  # or else /tmp, /run and others can be written
    if scratch_mb:
        runs = "exec" if kind == "compiler" else "noexec"
        words += ["--tmpfs", f"{_SCRATCH}:rw,nosuid,nodev,{runs},size={scratch_mb}m,mode=1777"]
    words += ["--env", "PYTHONHASHSEED=0", "--env", "PYTHONPATH=", "--entrypoint", "python3"]
    text = json.dumps(
        {
            "code": "",
            "readable": list(OF_COMPILERS) if kind == "compiler" else [],
            "scratch": _SCRATCH if scratch_mb else "",
            **settings_of(kind, settings, None),  # users of containers may share a number, and a count of processes
        }
    )
    return [*words, settings.image or IMAGE, "-s", "-S", "-B", "-P", "-c", _LOADER, text]


def _code() -> bytes:
    """Encode the fork server's modules, for the loader: source by name; none for a package."""
    sources: dict[str, str | None] = {"models": None, "models.sandbox": None, "models.sandbox.inside": None}
    for file in sorted(Path(INSIDE).glob("*.py")):
        if file.stem != "__init__":
            sources[f"models.sandbox.inside.{file.stem}"] = file.read_text(encoding="utf-8")
    return wire.framed(sources)


def _remove(engine: str, name: str) -> None:
    """Kill a container and remove it; do nothing if it has ended."""
    with contextlib.suppress(EngineFault):
        ask_engine(engine, "rm", "--force", name)

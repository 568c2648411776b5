"""Attacks on the sandbox: no program passes unsolved, reaches anything outside, or outlives its limits."""

from __future__ import annotations

import os
import platform
import secrets
import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Literal

import pytest

from models.sandbox.fork_servers import NotStarted, start
from models.sandbox.sandbox import Program, ProgramVerdict, Sandbox
from models.sandbox.settings import SandboxSettings
from tests.support.sandbox_attacks import CALLS, HARM, HONEST, LIES, OUTSIDE, PROCESSES, TESTS

Held = Literal["namespaces", "inner layers alone"]
LIMITS = SandboxSettings(seconds=0.5, seconds_together=1, memory_mb=256, file_mb=8, scratch_mb=32, workers=1)
PATIENT = replace(LIMITS, seconds=60, seconds_together=60)
"""Limits for programs that must pass, even on a busy machine."""
ATTACKS = {
    f"{kind}: {name}": source
    for kind, programs in {
        "outside": OUTSIDE,
        "processes": PROCESSES,
        "calls": CALLS,
        "harm": HARM,
        "lies": LIES,
    }.items()
    for name, source in programs.items()
}
NO_PYTHON = ("lies: deep source", "lies: source with zeros", "lies: half characters")
HELD_BY_LAYERS = ("outside", "processes", "calls")
"""Attacks that are also tested with the inner layers alone. Limits and the judge stop the others."""
CASES: list[tuple[Held, str]] = [("namespaces", name) for name in ATTACKS]
CASES += [("inner layers alone", name) for name in ATTACKS if name.startswith(HELD_BY_LAYERS)]


@dataclass
class Outside:
    """A sandbox, and the things outside it that no program may reach: a file, and two sockets that listen."""

    sandbox: Sandbox
    secret: Path
    tcp: socket.socket
    abstract: socket.socket
    name: str

    def verdict(self, source: str, tests: str = TESTS, limits: SandboxSettings = LIMITS) -> ProgramVerdict:
        self.sandbox.settings = limits
        places = {"SECRET": str(self.secret), "FOLDER": str(self.secret.parent), "NAME": self.name}
        places["PORT"] = str(self.tcp.getsockname()[1])
        for place, value in places.items():
            if place != "SECRET" or "SECRET_OF" not in source:
                source = source.replace(place, value)
        return self.sandbox.judge([Program(source, tests, "f")])[0]

    def untouched(self) -> bool:
        """Return whether the file is alone in its folder and unchanged, and no connection arrived."""
        state = self.secret.stat()
        for listening in (self.tcp, self.abstract):
            with pytest.raises(BlockingIOError):
                listening.accept()
        return (
            os.listdir(self.secret.parent) == [self.secret.name]
            and self.secret.read_text() == "the secret"
            and (state.st_mode & 0o777, state.st_mtime, state.st_nlink, state.st_uid) == (0o640, 1e9, 1, os.getuid())
        )


@contextmanager
def held_by(layers: Held, folder: Path) -> Iterator[Outside]:
    sandbox = Sandbox(LIMITS, namespaces=layers == "namespaces")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SECRET_OF_TESTS", "the secret")
        there = sandbox.layers
    if layers == "namespaces" and not there.namespaces:
        pytest.skip(f"this machine gives no namespaces; there are {there.line}")
    secret = folder / "file"
    secret.write_text("the secret")
    secret.chmod(0o640)
    os.utime(secret, (1e9, 1e9))
    name = f"attack-{secrets.token_hex(8)}"
    with socket.create_server(("127.0.0.1", 0)) as tcp, socket.socket(socket.AF_UNIX) as abstract:
        abstract.bind(f"\0{name}")
        abstract.listen()
        tcp.setblocking(False)
        abstract.setblocking(False)
        yield Outside(sandbox, secret, tcp, abstract, name)
    sandbox.close()


@pytest.fixture(scope="module")
def sandboxes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[Held], Outside]]:
    """Return a function that opens one sandbox per kind of layers. An indirect parameter would open one per case."""
    with ExitStack() as stack:
        yield cache(lambda layers: stack.enter_context(held_by(layers, tmp_path_factory.mktemp("outside"))))


@pytest.mark.rotating(of=6)
@pytest.mark.parametrize("layers, name", CASES)
def test_an_attack_is_contained(layers: Held, name: str, sandboxes: Callable[[Held], Outside]) -> None:
    outside = sandboxes(layers)
    if name.startswith("calls:") and platform.machine() != "x86_64":
        pytest.skip("its number is that of another machine")
    verdict = outside.verdict(ATTACKS[name])
    assert verdict.outcome in ("failed", "partly") or name in NO_PYTHON, verdict
    assert not verdict.why.startswith(("NameError", "ImportError", "TypeError: f()")), "the attack has a mistake"
    assert outside.untouched()
    after = outside.verdict(HONEST, "assert f(1) == 2", PATIENT)
    assert after.outcome == "passed", "the next program is judged as if nothing had been"


def test_what_an_attack_would_do_works_without_the_sandbox(tmp_path: Path) -> None:
    """Control: the attacks on files succeed without the sandbox, so it is the sandbox that stops them."""
    secret = tmp_path / "file"
    for name in ("read a file", "list a folder", "write a file", "append to a file", "rights of a file"):
        secret.write_text("the secret")
        names: dict[str, object] = {}
        exec(OUTSIDE[name].replace("SECRET", str(secret)).replace("FOLDER", str(tmp_path)), names)
        assert names["f"](1) == 2  # type: ignore[operator]


def test_a_fork_server_ends_with_whoever_started_it() -> None:
    server = start("program", LIMITS, namespaces=False)
    server.control.close()
    assert server.process.wait(10) == 0


def test_a_fork_server_that_may_start_processes_refuses_to_be_in_the_machines_own_namespace() -> None:
    with pytest.raises(NotStarted, match="the first of its namespace"):
        start("compiler", LIMITS, namespaces=False)

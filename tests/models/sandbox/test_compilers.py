"""The sandbox for compilers stops the same attacks as the sandbox for programs, except that it permits processes."""

from __future__ import annotations

import json
import os
import platform
import secrets
import socket
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from models.sandbox.sandbox import Sandbox
from models.sandbox.settings import SandboxSettings
from tests.support.compiler_sandbox import compiler_sandbox
from tests.support.sandbox_attacks import CALLS, HARM, OUTSIDE, PROCESSES

PYTHON = os.path.realpath(sys._base_executable)  # type: ignore[attr-defined]
PERMITTED = {"fork", "spawn", "subprocess", "execute", "shell"}
"""Attacks that may succeed: they start processes, which the namespace contains."""
ENDS_ALL = {"kill the parent", "kill all", "kill the group", "fork bomb"}
"""Attacks that end the whole command, so each runs in a command of its own."""
SLOW = {"endless loop", "sleep", "a loop when loaded", "a regular expression", "a large number", "ignored signals"}
"""Attacks that only the time limit of the command stops."""
EACH = """
import json, os, signal
for title, source in json.load(open("attacks.json")).items():
    child = os.fork()
    if child == 0:
        signal.alarm(2)
        ends = 9
        try:
            names = {}
            exec(source, names)
            ends = 0 if names["f"](1) == 2 else 9
        finally:
            os._exit(ends)
    if os.waitpid(child, 0)[1] == 0:
        print("won:", title, flush=True)
print("all tried")
"""
"""A script that runs each attack in a separate process, and prints the names of those that succeed."""


@pytest.fixture(scope="module")
def compilers() -> Iterator[Sandbox]:
    limits = SandboxSettings(seconds=60, memory_mb=256, file_mb=8, scratch_mb=32, workers=1, processes=8)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SECRET_OF_TESTS", "the secret")
        with compiler_sandbox(limits) as made:
            yield made


@pytest.mark.rotating(of=6)
@pytest.mark.skipif(platform.machine() != "x86_64", reason="numbers of system calls are those of another machine")
def test_attacks_of_the_first_profile_win_no_more_here_than_processes_of_their_own(
    compilers: Sandbox, tmp_path: Path
) -> None:
    secret = tmp_path / "file"
    secret.write_text("the secret")
    kept = (secret.stat().st_mode, secret.stat().st_mtime_ns)
    name = f"attack-{secrets.token_hex(8)}"
    with socket.create_server(("127.0.0.1", 0)) as tcp, socket.socket(socket.AF_UNIX) as abstract:
        abstract.bind(f"\0{name}")
        abstract.listen()
        places = {"'SECRET'": f"'{secret}'", "FOLDER": str(tmp_path), "NAME": name, "PORT": str(tcp.getsockname()[1])}
        attacks = {**OUTSIDE, **PROCESSES, **CALLS, **HARM}
        text = json.dumps({title: attacks[title] for title in attacks.keys() - ENDS_ALL - SLOW})
        for place, value in places.items():
            text = text.replace(place, value)
        ran = compilers.command([PYTHON, "-S", "-B", "each.py"], {"attacks.json": text, "each.py": EACH})
        for listening in (tcp, abstract):
            listening.setblocking(False)
            with pytest.raises(BlockingIOError):
                listening.accept()
    lines = ran.output.splitlines()
    won = {line.removeprefix("won: ") for line in lines if line.startswith("won: ")}
    assert lines[-1] == "all tried" and not ran.cut and not ran.late
    assert won == PERMITTED
    assert secret.read_text() == "the secret" and (secret.stat().st_mode, secret.stat().st_mtime_ns) == kept
    assert os.listdir(tmp_path) == ["file"]


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.thorough if name == "fork bomb" else ()) for name in sorted(ENDS_ALL)]
)
def test_what_ends_other_processes_ends_those_of_its_own_command_alone(compilers: Sandbox, name: str) -> None:
    source = f"{PROCESSES[name]}\nf(1)\n"
    compilers.command(["sh", "-c", f'"{PYTHON}" -S attack.py; true'], {"attack.py": source})
    assert compilers.command(["echo", "well"], {}).output == "well\n"


@pytest.mark.rotating(of=6)
def test_a_command_without_end_is_late_and_gone() -> None:
    hurried = Sandbox(SandboxSettings(seconds=1, workers=1, processes=8), compilers=True)
    ran = hurried.command(["sh", "-c", f'"{PYTHON}" -S attack.py'], {"attack.py": f"{HARM['ignored signals']}\nf(1)"})
    assert ran.late
    assert hurried.command(["sh", "-c", "cat /proc/*/comm | grep -c python"], {}).output == "0\n"
    hurried.close()

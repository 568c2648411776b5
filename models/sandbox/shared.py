"""Sandboxes that the callers of a process share, of the kind that the settings choose."""

from __future__ import annotations

import atexit
import os
import shutil
import threading
from collections.abc import Sequence

from models.sandbox.container import ContainerSandbox
from models.sandbox.interface import ProgramRunner
from models.sandbox.sandbox import Sandbox
from models.sandbox.settings import SandboxSettings

_SHARED: dict[tuple[int, SandboxSettings, bool], ProgramRunner] = {}
_SHARED_LOCK = threading.Lock()


def shared_sandbox(settings: SandboxSettings, *, compilers: bool = False) -> ProgramRunner:
    """Return the sandbox of this process with these settings, shared by all callers until the process ends.

    `settings.runner` chooses the kind of sandbox.
    """
    key = (os.getpid(), settings, compilers)
    with _SHARED_LOCK:
        if key not in _SHARED:
            _SHARED[key] = _runner_class(settings)(settings, compilers)
            atexit.register(_SHARED[key].close)
        return _SHARED[key]


def missing_programs(settings: SandboxSettings, names: Sequence[str]) -> list[str]:
    """Return the programs, such as compilers, that are not installed where commands run: here, or in the image.

    Raises:
        UserError: containers cannot be run here.
    """
    if settings.runner == "local":
        return [name for name in names if shutil.which(name) is None]
    sandbox = shared_sandbox(settings, compilers=True)
    return [name for name in names if sandbox.command(["sh", "-c", f"command -v {name}"], {}).status != 0]


def _runner_class(settings: SandboxSettings) -> type[Sandbox]:
    return Sandbox if settings.runner == "local" else ContainerSandbox

"""The layers that a process applies to itself before it runs untrusted code."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from models.sandbox.inside import kernel, landlock
from models.sandbox.inside.seccomp import UnknownMachine, filter_for


@dataclass(frozen=True)
class Jail:
    """Layers that are prepared once and applied in every child."""

    rules: int | None
    """Open file of Landlock's rules; None: this kernel has no Landlock."""
    filter: bytes | None
    """Seccomp's program; None: this machine's calls are not known, or its kernel takes no filter."""
    limits: Mapping[str, Any]
    """Arguments of `kernel.set_limits`."""

    @classmethod
    def prepare(cls, kind: str, readable: Sequence[str], writable: Sequence[str], limits: Mapping[str, Any]) -> Jail:
        """Prepare the layers that this machine has: each is tried in a child first."""
        rules, code = None, None
        with contextlib.suppress(OSError):
            rules = landlock.make_rules(readable, writable, run_written=kind == "compiler")
        with contextlib.suppress(UnknownMachine):
            code = filter_for(kind)
        if rules is not None and not _works(partial(landlock.restrict, rules)):
            rules = None
        if code is not None and not _works(partial(kernel.set_filter, code)):
            code = None
        return cls(rules, code, limits)

    def enter(self, keep: Sequence[int]) -> None:
        """Apply every layer permanently; open files but the first three and `keep`, which become 3, 4, ..., are closed.

        Raises:
            OSError: a layer fails.
        """
        kernel.no_new_privileges()
        if self.rules is not None:
            landlock.restrict(self.rules)
        _keep(keep)
        kernel.set_limits(**self.limits)
        kernel.drop_capabilities()
        kernel.not_dumpable()
        if self.filter is not None:
            kernel.set_filter(self.filter)


def _keep(files: Sequence[int]) -> None:
    """Close all files except the first three and these."""
    above = 3 + len(files)
    away = [os.dup(file) for file in files]
    while any(file < above for file in away):
        away = [os.dup(file) if file < above else file for file in away]
    for place, file in enumerate(away, start=3):
        os.dup2(file, place, inheritable=False)
    os.closerange(above, 1 << 16)


def _works(layer: Callable[[], None]) -> bool:
    """Check in a child whether a process can apply a layer."""
    child = os.fork()
    if child == 0:
        try:
            kernel.no_new_privileges()
            layer()
            os._exit(0)
        except BaseException:
            os._exit(1)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0

"""The layers that a process puts on itself before it runs what is not trusted."""

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
    """Layers that are made once and put on in every child."""

    rules: int | None
    """Open file of Landlock's rules; None: this kernel has no Landlock."""
    filter: bytes | None
    """Seccomp's program; None: this machine's calls are not known, or its kernel takes no filter."""
    limits: Mapping[str, Any]
    """As `kernel.set_limits` takes them."""

    @classmethod
    def prepare(cls, kind: str, readable: Sequence[str], writable: Sequence[str], limits: Mapping[str, Any]) -> Jail:
        """The layers that this machine has: each is tried in a child first."""
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
        """Put on every layer, for ever; open files but the first three and `keep`, which become 3, 4, ..., are closed.

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
    """Leave the first three files and these open, and no other."""
    above = 3 + len(files)
    away = [os.dup(file) for file in files]
    while any(file < above for file in away):
        away = [os.dup(file) if file < above else file for file in away]
    for place, file in enumerate(away, start=3):
        os.dup2(file, place, inheritable=False)
    os.closerange(above, 1 << 16)


def _works(layer: Callable[[], None]) -> bool:
    """Whether a process can put on a layer: a child tries."""
    child = os.fork()
    if child == 0:
        try:
            kernel.no_new_privileges()
            layer()
            os._exit(0)
        except BaseException:
            os._exit(1)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0

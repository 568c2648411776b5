"""Landlock: limits the files that a process may access, as any user, and the processes it may reach (Linux 5.13 on)."""

from __future__ import annotations

import os
import stat
import struct
from collections.abc import Sequence

from models.sandbox.inside.kernel import call

_CREATE, _ADD, _RESTRICT = 444, 445, 446  # the same on every machine
_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR = (1 << bit for bit in range(4))
_ALL = {1: (1 << 13) - 1, 2: (1 << 14) - 1, 3: (1 << 15) - 1, 4: (1 << 15) - 1}
_ALL_TODAY = (1 << 16) - 1
"""All rights over files that a version of Landlock knows, from the fifth on."""
_TRUNCATE, _DEVICE_CONTROL = 1 << 14, 1 << 15
_OF_FILES = _EXECUTE | _WRITE_FILE | _READ_FILE | _TRUNCATE | _DEVICE_CONTROL
_NETWORK = 0b11
"""Binding and connecting over TCP, from the fourth version on."""
_SCOPES = 0b11
"""Abstract sockets and signals of processes outside, from the sixth version on."""


def version() -> int:
    """Return Landlock's version of this kernel; 0: it has none."""
    try:
        return call(_CREATE, None, 0, 1)
    except OSError:
        return 0


def make_rules(readable: Sequence[str], writable: Sequence[str], *, run_written: bool) -> int:
    """Make rules for `restrict` and return the number of their open file.

    Args:
        readable: what may be read and run, with all below it; missing paths are skipped.
        writable: what may be read and written, with all below it.
        run_written: whether it may be run too.

    Raises:
        OSError: this kernel has no Landlock.
    """
    known = version()
    everything = _ALL.get(known, _ALL_TODAY)
    handled = struct.pack("QQQ", everything, _NETWORK if known >= 4 else 0, _SCOPES if known >= 6 else 0)
    rules = call(_CREATE, handled, 24 if known >= 6 else 16 if known >= 4 else 8, 0)
    os.set_inheritable(rules, False)
    allowed = [(path, _EXECUTE | _READ_FILE | _READ_DIR) for path in readable]
    allowed += [(path, everything & ~_DEVICE_CONTROL & ~(0 if run_written else _EXECUTE)) for path in writable]
    for path, rights in allowed:
        try:
            opened = os.open(path, os.O_PATH | os.O_CLOEXEC)
        except OSError:
            continue
        try:
            folder = stat.S_ISDIR(os.fstat(opened).st_mode)
            call(_ADD, rules, 1, struct.pack("=Qi", rights if folder else rights & _OF_FILES, opened), 0)
        finally:
            os.close(opened)
    return rules


def restrict(rules: int) -> None:
    """Restrict this process to the rules permanently. It must have given up new privileges before."""
    call(_RESTRICT, rules, 0)

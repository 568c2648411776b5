"""A seccomp filter that allows what is listed and refuses all else, for x86-64 and aarch64."""

from __future__ import annotations

import errno
import os
import struct

from models.sandbox.inside.system_calls import ALLOWED, MACHINES, MISSING, NAMESPACES, NUMBERS, SAFE_ARGUMENTS, THREAD

_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_ALLOW, _KILL, _REFUSE = 0x7FFF0000, 0x80000000, 0x00050000
_NUMBER, _MACHINE, _FIRST, _SECOND, _THIRD = 0, 4, 16, 24, 32
"""Offsets of the call's number, the machine, and the lower halves of its arguments."""
_X32 = 0x40000000
"""Numbers from here on are calls of another kind of process, which a filter for x86-64 must not allow."""
_UNIX = 1

Instruction = tuple[int, int, int, int]


class UnknownMachine(Exception):
    """The system calls of this machine are not known."""


def filter_for(kind: str, machine: str = "") -> bytes:
    """Return the filter for a kind of process, [instructions * 8 bytes].

    Args:
        kind: a key of ALLOWED.
        machine: as uname names it; empty: this one.

    Raises:
        UnknownMachine: its calls are not known.
    """
    machine = machine or os.uname().machine
    if machine not in MACHINES:
        raise UnknownMachine(f"no list of system calls for {machine}")
    numbers = NUMBERS[machine]
    program: list[Instruction] = [
        (_LOAD, 0, 0, _MACHINE),
        (_EQUAL, 1, 0, MACHINES[machine]),
        (_RETURN, 0, 0, _KILL),
        (_LOAD, 0, 0, _NUMBER),
        (_AT_LEAST, 0, 1, _X32),
        (_RETURN, 0, 0, _KILL),
    ]
    for name in sorted(ALLOWED[kind] - {"socketpair"}):
        if name in numbers:
            program += _where(numbers[name], [(_RETURN, 0, 0, _ALLOW)])
    for name in sorted(MISSING):
        program += _where(numbers[name], [(_RETURN, 0, 0, _REFUSE | errno.ENOSYS)])
    for name, values in SAFE_ARGUMENTS.items():
        program += _where(numbers[name], [(_LOAD, 0, 0, _SECOND), *_if_equal(values)])
    program += _where(numbers["clone"], _clone(forks=kind == "compiler"))
    reads_limits = [(_LOAD, 0, 0, _THIRD), (_EQUAL, 0, 3, 0), (_LOAD, 0, 0, _THIRD + 4), *_if_equal((0,))]
    program += _where(numbers["prlimit64"], reads_limits)
    if "socketpair" in ALLOWED[kind]:
        program += _where(numbers["socketpair"], [(_LOAD, 0, 0, _FIRST), *_if_equal((_UNIX,))])
    program.append(_refusal())
    return b"".join(struct.pack("HBBI", *instruction) for instruction in program)


def _refusal() -> Instruction:
    return (_RETURN, 0, 0, _REFUSE | errno.EPERM)


def _where(number: int, then: list[Instruction]) -> list[Instruction]:
    """Run `then` if the call has this number; `then` returns in any case."""
    return [(_EQUAL, 0, len(then), number), *then]


def _if_equal(values: tuple[int, ...]) -> list[Instruction]:
    """Allow the call if the loaded value is one of `values`, else refuse."""
    tests = [test for value in values for test in ((_EQUAL, 0, 1, value), (_RETURN, 0, 0, _ALLOW))]
    return [*tests, _refusal()]


def _clone(*, forks: bool) -> list[Instruction]:
    """Allow threads, and processes if `forks`; never a new namespace."""
    return [
        (_LOAD, 0, 0, _FIRST),
        (_ANY_BIT, 0, 1, NAMESPACES),
        _refusal(),
        *([] if forks else [(_ANY_BIT, 1, 0, THREAD), _refusal()]),
        (_RETURN, 0, 0, _ALLOW),
    ]

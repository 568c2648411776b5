"""System calls that Python has no function for, and the limits of a process."""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import signal
import struct

_LIBC = ctypes.CDLL(None, use_errno=True)
_SET_DEATH_SIGNAL, _SET_DUMPABLE, _SET_NO_NEW_PRIVILEGES, _SET_SECCOMP = 1, 4, 38, 22
_CAPSET = {"x86_64": 126, "aarch64": 91}
_CAPABILITIES_3 = 0x20080522


def call(number: int, *arguments: int | bytes | ctypes.Array[ctypes.c_char] | None) -> int:
    """Make a system call by its number.

    Raises:
        OSError: the kernel refuses.
    """
    typed = [ctypes.c_long(value) if isinstance(value, int) else value for value in arguments]
    return _checked(_LIBC.syscall(ctypes.c_long(number), *typed), f"system call {number}")


def _checked(result: int, what: str) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")
    return result


def _control(option: int, value: int | ctypes.c_void_p, second: object = 0) -> None:
    _checked(_LIBC.prctl(option, value, second, 0, 0), f"prctl {option}")


def die_with_parent(parent: int) -> None:
    """Have the kernel end this process as soon as its parent, the process with the number `parent`, ends."""
    _control(_SET_DEATH_SIGNAL, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


def no_new_privileges() -> None:
    """Give up for good all ways to gain privileges, such as setuid programs."""
    _control(_SET_NO_NEW_PRIVILEGES, 1)


def not_dumpable() -> None:
    """Forbid core dumps, whatever the system does with them, and tracing of this process."""
    _control(_SET_DUMPABLE, 0)


def set_filter(program: bytes) -> None:
    """Apply a seccomp filter to every later system call of this process; [instructions * 8 bytes]."""
    code = ctypes.create_string_buffer(program, len(program))
    head = ctypes.create_string_buffer(struct.pack("HxxxxxxQ", len(program) // 8, ctypes.addressof(code)))
    _control(_SET_SECCOMP, 2, ctypes.c_void_p(ctypes.addressof(head)))


def drop_capabilities() -> None:
    """Drop all capabilities, also as root; on an unknown machine they are kept."""
    number = _CAPSET.get(os.uname().machine)
    if number is not None:
        call(number, struct.pack("Ii", _CAPABILITIES_3, 0), bytes(24))


def die_first() -> None:
    """Make this process the first that the kernel ends if memory runs out."""
    with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w") as file:
        file.write("1000")


def set_limits(seconds: int, memory: int, file: int, open_files: int, processes: int | None) -> None:
    """Set limits of this process and those that it starts.

    Args:
        seconds: limit of CPU time, seconds; a second later it is killed.
        memory: bytes of addresses.
        file: bytes of a file.
        open_files: how many files may be open.
        processes: and threads, of this user in this namespace; None: no limit.
    """
    values = {
        resource.RLIMIT_CPU: (seconds, seconds + 1),
        resource.RLIMIT_AS: (memory, memory),
        resource.RLIMIT_FSIZE: (file, file),
        resource.RLIMIT_NOFILE: (open_files, open_files),
        resource.RLIMIT_CORE: (0, 0),
        resource.RLIMIT_STACK: (8 << 20, 8 << 20),
        resource.RLIMIT_MEMLOCK: (0, 0),
        resource.RLIMIT_MSGQUEUE: (0, 0),
    }
    if processes is not None:
        values[resource.RLIMIT_NPROC] = (processes, processes)
    for which, (soft, hard) in values.items():
        most = resource.getrlimit(which)[1]
        if most != resource.RLIM_INFINITY:
            soft, hard = min(soft, most), min(hard, most)
        resource.setrlimit(which, (soft, hard))

"""Numbers of system calls, by machine, and which of them a jailed process may make."""

from __future__ import annotations

from collections.abc import Mapping

MACHINES: Mapping[str, int] = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
"""Machines whose calls are known, with the kernel's name for them."""

_TABLE = """
read 0 63, write 1 64, open 2 -, close 3 57, stat 4 -, fstat 5 80, lstat 6 -, poll 7 -, lseek 8 62, mmap 9 222,
mprotect 10 226, munmap 11 215, brk 12 214, rt_sigaction 13 134, rt_sigprocmask 14 135, rt_sigreturn 15 139,
ioctl 16 29, pread64 17 67, pwrite64 18 68, readv 19 65, writev 20 66, access 21 -, pipe 22 -, select 23 -,
sched_yield 24 124, mremap 25 216, msync 26 227, madvise 28 233, dup 32 23, dup2 33 -, nanosleep 35 101,
getitimer 36 102, alarm 37 -, setitimer 38 103, getpid 39 172, sendfile 40 71, sendto 44 206, recvfrom 45 207,
sendmsg 46 211, getsockname 51 204, getsockopt 55 209, socketpair 53 199, clone 56 220, fork 57 -, vfork 58 -,
execve 59 221, exit 60 93, wait4 61 260, kill 62 129, uname 63 160, fcntl 72 25, flock 73 32, fsync 74 82,
fdatasync 75 83, ftruncate 77 46, getcwd 79 17, chdir 80 49, fchdir 81 50, rename 82 -, mkdir 83 -, rmdir 84 -,
link 86 -, unlink 87 -, symlink 88 -, readlink 89 -, chmod 90 -, fchmod 91 52, umask 95 166, gettimeofday 96 169,
getrlimit 97 163, getrusage 98 165, sysinfo 99 179, times 100 153, getuid 102 174, getgid 104 176, geteuid 107 175,
getegid 108 177, setpgid 109 154, getppid 110 173, getpgrp 111 -, setsid 112 157, getgroups 115 158, getpgid 121 155,
getsid 124 156, rt_sigpending 127 136, rt_sigtimedwait 128 137, rt_sigsuspend 130 133, sigaltstack 131 132,
statfs 137 43, fstatfs 138 44, arch_prctl 158 -, getxattr 191 8, lgetxattr 192 9, listxattr 194 11, llistxattr 195 12,
time 201 -, gettid 186 178, futex 202 98, sched_getaffinity 204 123, getdents64 217 61, set_tid_address 218 96,
restart_syscall 219 128, fadvise64 221 223, clock_gettime 228 113, clock_getres 229 114, clock_nanosleep 230 115,
exit_group 231 94, tgkill 234 131, waitid 247 95, openat 257 56, mkdirat 258 34, newfstatat 262 79, unlinkat 263 35,
renameat 264 38, linkat 265 37, symlinkat 266 36, readlinkat 267 78, fchmodat 268 53, faccessat 269 48,
pselect6 270 72, ppoll 271 73, set_robust_list 273 99, get_robust_list 274 100, utimensat 280 88, fallocate 285 47,
dup3 292 24, pipe2 293 59, prlimit64 302 261, renameat2 316 276, getrandom 318 278, copy_file_range 326 285,
statx 332 291, rseq 334 293, clone3 435 435, close_range 436 436, openat2 437 437, faccessat2 439 439
"""
NUMBERS: Mapping[str, Mapping[str, int]] = {
    machine: {words[0]: int(words[place]) for words in map(str.split, _TABLE.split(",")) if words[place] != "-"}
    for place, machine in enumerate(MACHINES, start=1)
}
"""By machine and name; "-" above: the machine has no such call."""

_COMPUTING = frozenset(
    "read write close lseek mmap mprotect munmap brk rt_sigaction rt_sigprocmask rt_sigreturn pread64 pwrite64 readv "
    "writev poll ppoll select pselect6 sched_yield mremap msync madvise dup dup2 dup3 pipe pipe2 nanosleep "
    "clock_nanosleep getitimer setitimer alarm getpid getppid gettid getuid getgid geteuid getegid getgroups uname "
    "gettimeofday time getrlimit getrusage sysinfo times sigaltstack futex sched_getaffinity set_tid_address "
    "restart_syscall clock_gettime clock_getres exit exit_group set_robust_list get_robust_list getrandom rseq "
    "close_range rt_sigpending rt_sigtimedwait rt_sigsuspend".split()
)
_FILES = frozenset(
    "open openat stat lstat fstat newfstatat statx access faccessat faccessat2 getdents64 getcwd chdir fchdir readlink "
    "readlinkat fsync fdatasync ftruncate rename renameat renameat2 mkdir mkdirat rmdir unlink unlinkat link linkat "
    "symlink symlinkat umask flock fadvise64".split()
)
_ASKING = frozenset("socketpair sendmsg sendto recvfrom getsockname getsockopt".split())
_PROCESSES = frozenset(
    "fork vfork execve wait4 waitid kill tgkill setpgid getpgid getpgrp setsid getsid arch_prctl chmod fchmod fchmodat "
    "utimensat statfs fstatfs fallocate copy_file_range sendfile getxattr lgetxattr listxattr llistxattr".split()
)
ALLOWED: Mapping[str, frozenset[str]] = {
    "program": _COMPUTING | _FILES,
    "judge": _COMPUTING | _FILES | _ASKING,
    "compiler": _COMPUTING | _FILES | _PROCESSES,
}
"""System calls that each kind of process may make with any arguments. All others are refused with "not permitted".

Landlock does not restrict chmod and the times of files, so only those kinds may call them that have their own mount
namespace.
"""
MISSING = frozenset({"clone3", "openat2"})
"""Calls answered as by a kernel that lacks them: libraries then make the older call, whose arguments are readable."""

THREAD, NAMESPACES = 0x10000, 0x7E020080
"""Flags of clone: a thread of the same process; a new namespace of any kind."""
SAFE_ARGUMENTS: Mapping[str, tuple[int, ...]] = {
    "fcntl": (0, 1, 2, 3, 4, 5, 6, 7, 1030, 1032),  # not F_SETOWN and F_SETSIG, which send signals to others
    "ioctl": (0x5401, 0x5413, 0x5421, 0x541B, 0x5450, 0x5451),  # terminals' state, blocking, bytes to read, inheriting
}
"""Allowed values of the second argument."""

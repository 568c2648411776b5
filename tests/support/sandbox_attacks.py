"""Programs that attack the sandbox: they access files or processes outside, harm the machine, or forge a verdict.

A program passes its tests, f(x) = x + 1, only if its attack succeeds. The tests replace SECRET and FOLDER with a file
outside of the sandbox and its folder, and PORT and NAME with sockets that listen outside.
"""

from __future__ import annotations

from collections.abc import Mapping

TESTS = """
def check(candidate):
    assert candidate(0) == 1
    assert candidate(1) == 2
    assert candidate(2) == 3
    for number in range(3, 6):
        assert candidate(number) == number + 1
"""
HONEST = "def f(x):\n    return x + 1\n"


def _does(*lines: str, then: str = "return x + 1", before: str = "") -> str:
    """Return a program that runs `lines` and, if they raise no exception, the statement `then`.

    By default, this statement returns the right answer.
    """
    return "import os, sys\n" + before + "def f(x):\n" + "".join(f"    {line}\n" for line in (*lines, then))


def _calls(number: str, *arguments: str) -> str:
    """Return a program that makes a system call, and returns the right answer if the kernel executed the call."""
    made = f"library.syscall({', '.join((number, *arguments))})"
    return _does(f"if {made} < 0:", "    raise OSError", before="import ctypes\nlibrary = ctypes.CDLL(None)\n")


OUTSIDE: Mapping[str, str] = {
    "tcp": _does("socket.create_connection(('127.0.0.1', PORT), 1)", before="import socket\n"),
    "udp": _does(
        "socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b'x', ('127.0.0.1', PORT))", before="import socket\n"
    ),
    "listening": _does("socket.create_server(('127.0.0.1', 0))", before="import socket\n"),
    "name lookup": _does("socket.getaddrinfo('localhost', 80)", before="import socket\nsocket.socket()\n"),
    "abstract socket": _does("socket.socket(socket.AF_UNIX).connect('\\0NAME')", before="import socket\n"),
    "socket pair to a path": _does(
        "socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)[0].sendto(b'x', '/dev/log')", before="import socket\n"
    ),
    "read a file": _does("open('SECRET').read()"),
    "read accounts": _does("open('/etc/passwd').read()"),
    "list a folder": _does("os.listdir('FOLDER')"),
    "read through a link": _does("os.symlink('SECRET', f'link{x}')", "open(f'link{x}').read()"),
    "hard link": _does("os.link('SECRET', f'hard{x}')"),
    "write a file": _does("open('FOLDER/evil', 'w').write('x')"),
    "append to a file": _does("open('SECRET', 'a').write('x')"),
    "truncate a file": _does("os.truncate('SECRET', 0)"),
    "remove a file": _does("os.unlink('SECRET')"),
    "rename a file": _does("os.rename('SECRET', 'FOLDER/gone')"),
    "make a folder": _does("os.mkdir('FOLDER/evil')"),
    "rights of a file": _does("os.chmod('SECRET', 0o777)"),
    "times of a file": _does("os.utime('SECRET', (0, 0))"),
    "owner of a file": _does("os.chown('SECRET', 12345, 12345)"),
    "change the library": _does("open(os.__file__, 'a').write('#')"),
    "shared memory folder": _does("open('/dev/shm/evil', 'w').write('x')"),
    "make a device": _does("os.mknod('device', 0o600 | 0o020000, 0x0103)"),
    "environment": _does("os.environ['SECRET_OF_TESTS']"),
    "environment of another": _does("open(f'/proc/{os.getppid()}/environ').read()"),
    "memory by proc": _does("open('/proc/self/mem', 'rb')"),
    "processes by proc": _does("os.listdir('/proc')"),
}
"""Access to files, names and addresses outside of the sandbox."""

PROCESSES: Mapping[str, str] = {
    "kill the parent": _does("os.kill(os.getppid(), 9)"),
    "kill all": _does("os.kill(-1, 9)"),
    "kill the group": _does("os.killpg(0, 9)"),
    "signal the judge": _does("[os.kill(number, 0) for number in (1, 2, 3, 4) if number != os.getpid()]"),
    "signal by file": _does("fcntl.fcntl(3, fcntl.F_SETOWN, os.getppid())", before="import fcntl\n"),
    "fork": _does("if os.fork() == 0:", "    os._exit(0)"),
    "fork bomb": _does("for _ in range(100000):", "    os.fork()"),
    "spawn": _does("os.posix_spawn('/usr/bin/true', ['true'], {})"),
    "subprocess": _does("subprocess.run(['/usr/bin/id'], check=True)", before="import subprocess\n"),
    "execute": _does("os.execv('/usr/bin/true', ['true'])"),
    "shell": _does("if os.system('true'):", "    raise OSError"),
    "threads without end": _does(
        "for _ in range(5000):",
        "    threading.Thread(target=time.sleep, args=(9,), daemon=True).start()",
        before="import threading, time\n",
    ),
    "more rights": _does("os.setuid(0)", "os.setgid(0)"),
    "higher limits": _does("resource.setrlimit(resource.RLIMIT_AS, (-1, -1))", before="import resource\n"),
    "priority": _does("os.nice(-5)"),
}
"""Signals to other processes, new processes, and more rights."""

CALLS: Mapping[str, str] = {
    "ptrace": _calls("101", "16", "os.getppid()", "0", "0"),
    "trace me": _calls("101", "0", "0", "0", "0"),
    "read memory of another": _calls("310", "os.getppid()", "0", "0", "0", "0", "0"),
    "process handle": _calls("434", "os.getppid()", "0"),
    "user namespace": _calls("272", "0x10000000"),
    "mount namespace": _calls("272", "0x20000"),
    "clone into namespaces": _calls("56", "0x10000011", "0", "0", "0", "0"),
    "mount": _calls("165", "b'none'", "b'/'", "b'tmpfs'", "0", "0"),
    "unmount": _calls("166", "b'/'", "2"),
    "new mount interface": _calls("430", "b'tmpfs'", "0"),
    "change root": _calls("161", "b'/'"),
    "io_uring": _calls("425", "4", "ctypes.create_string_buffer(120)"),
    "bpf": _calls("321", "0", "0", "0"),
    "performance counters": _calls("298", "ctypes.create_string_buffer(120)", "0", "-1", "-1", "0"),
    "page faults": _calls("323", "1"),
    "keys": _calls("250", "0", "-3", "1"),
    "memory file": _calls("319", "b'x'", "0"),
    "personality": _calls("135", "0x0040000"),
    "host name": _calls("170", "b'evil'", "4"),
    "kernel log": _calls("103", "10", "0", "0"),
    "file handles": _calls("304", "-1", "0", "0"),
    "x32": _calls("0x40000000 + 39"),
    "execute by file": _calls("322", "-100", "b'/usr/bin/true'", "0", "0", "0"),
    "shared memory": _calls("29", "0", "4096", "0o1600"),
}
"""Forbidden system calls, by their numbers on x86-64."""

HARM: Mapping[str, str] = {
    "endless loop": _does("while True:", "    pass"),
    "sleep": _does("time.sleep(60)", before="import time\n"),
    "a loop when loaded": "while True:\n    pass\n",
    "a regular expression": _does("re.match(r'(a+)+$', 'a' * 50 + 'b')", before="import re\n"),
    "memory in lists": _does("held = []", "while True:", "    held.append(bytearray(1 << 22))"),
    "memory by mmap": _does("held = [mmap.mmap(-1, 1 << 26) for _ in range(100)]", before="import mmap\n"),
    "memory at once": _does("held = 'x' * (1 << 33)"),
    "a large number": _does("len(str(9 ** 9 ** 9))"),
    "a large file": _does("open('large', 'wb').write(bytes(20 << 20))"),
    "fill the disk": _does("for number in range(100):", "    open(f'{number}', 'wb').write(bytes(1 << 20))"),
    "many open files": _does("held = [open(os.__file__) for _ in range(200)]"),
    "deep recursion": _does("go(0)", before="sys.setrecursionlimit(10**9)\ndef go(n):\n    return go(n + 1) + 1\n"),
    "a crash": _does("ctypes.string_at(0)", before="import ctypes\n"),
    "abort": _does("os.abort()"),
    "ignored signals": _does(
        "[signal.signal(number, signal.SIG_IGN) for number in (2, 15, 24)]", "while True:", "    pass",
        before="import signal\n",
    ),
}  # fmt: skip
"""Excessive use of time, memory or disk, and crashes."""

LIES: Mapping[str, str] = {
    "equal to all": _does(before="class All:\n    __eq__ = lambda *_: True\n", then="return All()"),
    "a number equal to all": _does(
        before="class All(int):\n    __eq__ = lambda *_: True\n    __hash__ = int.__hash__\n", then="return All(77)"
    ),
    "a number that cannot be compared": _does(then="return float('nan')"),
    "leave when loaded": "import sys\nsys.exit(0)\n",
    "leave": _does("sys.exit(0)"),
    "leave at once": _does("os._exit(0)"),
    "interrupt": _does("raise KeyboardInterrupt"),
    "claim a wrong assertion": _does("raise AssertionError"),
    "assertions switched off": "import builtins\nbuiltins.AssertionError = Exception\ndef f(x):\n    return 0\n",
    "a verdict on standard output": _does(
        "print('{\"passed\": 4, \"cases\": 4, \"faults\": 0}', flush=True)", then="return 0"
    ),
    "a verdict instead of an answer": _does(
        "data = json.dumps({'passed': 4, 'cases': 4, 'faults': 0, 'why': ''}).encode()",
        "os.write(3, struct.pack('<I', len(data)) + data)",
        then="return 0", before="import json, struct\n",
    ),
    "answers written in advance": (
        "import json, os, struct\nfor value in range(1, 7):\n    data = json.dumps({'value': value}).encode()\n"
        "    os.write(3, struct.pack('<I', len(data)) + data)\ndef f(x):\n    return 0\n"
    ),
    "guessed numbers of asks": (
        "import json, os, struct\nfor value in range(1, 7):\n    for nonce in (value, '0' * 32):\n"
        "        data = json.dumps({'nonce': nonce, 'value': value}).encode()\n"
        "        os.write(3, struct.pack('<I', len(data)) + data)\ndef f(x):\n    return 0\n"
    ),
    "the same number again": (
        "import json, os, struct, sys\ndef f(x):\n    nonce = sys._getframe(1).f_locals['ask']['nonce']\n"
        "    for value in range(1, 7):\n        data = json.dumps({'nonce': nonce, 'value': value}).encode()\n"
        "        os.write(3, struct.pack('<I', len(data)) + data)\n    return 0\n"
    ),
    "the rest of an answer": _does("os.write(3, b'\\xff\\xff\\xff\\x7f')", then="return x + 1"),
    "no message": _does("os.write(3, b'\\x02\\0\\0\\0{{')", then="return x + 1"),
    "deep nesting on the wire": _does(
        "data = b'[' * 200000", "os.write(3, struct.pack('<I', len(data)) + data)", before="import struct\n"
    ),
    "an unknown tag": _does("data = b'{\"nonce\": 1, \"value\": {\"q\": 1}}'",
        "os.write(3, struct.pack('<I', len(data)) + data)", before="import struct\n"),
    "a counter in memory": "at = 0\ndef f(x):\n    global at\n    at += 1\n    return at\n",
    "a counter in a file": (
        "import os\ndef f(x):\n    at = int(open('at').read()) if os.path.exists('at') else 0\n"
        "    open('at', 'w').write(str(at + 1))\n    return at + 1\n"
    ),
    "expected values in frames": (
        "import sys\ndef f(x):\n    frame = sys._getframe()\n    while frame:\n"
        "        if any('candidate' in str(name) for name in (*frame.f_locals, *frame.f_globals)):\n"
        "            return x + 1\n        frame = frame.f_back\n    return 0\n"
    ),
    "expected values in memory": (
        "import gc, types\ndef f(x):\n    made = '' .join(('asse', 'rt candi', 'date('))\n"
        "    for held in gc.get_objects():\n        if isinstance(held, dict) and any(\n"
        "            isinstance(value, str) and made in value for value in list(held.values())\n        ):\n"
        "            return x + 1\n    return 0\n"
    ),
    "the judge's module": _does(
        "from models.sandbox.inside import judge",
        "import gc",
        "judges = [held for held in gc.get_objects() if isinstance(held, judge.Judge)]",
        "x = judges[0].request['tests'] and x",
    ),
    "a patched wire": (
        "import sys\nwire = sys.modules.get('models.sandbox.inside.wire')\n"
        "wire.pack = lambda value, depth=0: True\ndef f(x):\n    return 0\n"
    ),
    "other open files": (
        "import os\ndef f(x):\n    for number in range(4, 1024):\n        try:\n            os.fstat(number)\n"
        "            return x + 1\n        except OSError:\n            pass\n    return 0\n"
    ),
    "a class that pickles": _does(
        before="class Bomb:\n    def __reduce__(self):\n        return (os.system, ('true',))\n", then="return Bomb()"
    ),
    "a loop in a list": _does("held = []", "held.append(held)", then="return held"),
    "a very deep list": _does("held = []", "for _ in range(5000):", "    held = [held]", then="return held"),
    "a very long text": _does(then="return 'x' * (64 << 20)"),
    "a text that never ends": _does(
        before="class Endless(Exception):\n    def __str__(self):\n        raise self\n", then="raise Endless"
    ),
    "numbers of the same hash": _does(then="return {n * (2 ** 61 - 1) for n in range(30000)}"),
    "deep source": "(" * 5000 + ")" * 5000,
    "source with zeros": "def f(x):\n    return x + 1\n\0",
    "half characters": "def f(x):\n    return '\ud800'\n",
}  # fmt: skip
"""False answers, forged messages to the judge, and source that Python cannot compile."""

"""Start of a fork server in a container: its connections are carried over the container's standard streams.

The bridge runs as a thread of the fork server, which is the first process of the container: the fork server ends all
other processes after a child that may start some.
"""

from __future__ import annotations

import json
import os
import socket
import sys
import threading

from models.sandbox.inside import wire, zygote
from models.sandbox.inside.bridge import SocketBridge

_READABLE = ("/usr", "/lib", "/lib64", "/lib32", "/bin", "/sbin")


def main(text: str) -> None:
    """Carry the connections of a fork server, and serve until the container's standard input ends.

    Args:
        text: settings as JSON, as of `zygote.main`; its files and readable folders are those of the container.
    """
    settings = json.loads(text)
    reads, writes = os.dup(0), os.dup(1)
    nothing = os.open(os.devnull, os.O_RDWR)
    os.dup2(nothing, 0)
    os.dup2(nothing, 1)
    carried, control = socket.socketpair()
    gives, programs = socket.socketpair() if settings["kind"] == "judge" else (None, None)
    settings["control"] = control.detach()
    settings["programs"] = None if programs is None else programs.detach()
    prefix = os.path.realpath(sys.base_prefix)
    below = any(prefix == folder or prefix.startswith(f"{folder}/") for folder in _READABLE)
    settings["readable"] += [*(path for path in _READABLE if os.path.isdir(path)), *([] if below else [prefix])]

    def carry() -> None:
        """Pass the report of the fork server on, then carry its connections; the container ends with them."""
        data = wire.framed(wire.receive(carried))
        while data:
            data = data[os.write(writes, data) :]
        os.dup2(nothing, 2)
        SocketBridge(reads, writes, gives=gives, takes=carried, first=1).carry()
        os._exit(0)

    threading.Thread(target=carry, daemon=True).start()
    zygote.main(json.dumps(settings))
    os._exit(0)

"""Which layers this machine has for the sandbox, tried and not guessed."""

from __future__ import annotations

from dataclasses import dataclass

from models.sandbox.fork_servers import Layers, NotStarted, start
from models.sandbox.settings import SandboxSettings


@dataclass(frozen=True)
class Had:
    """What holds programs on this machine."""

    layers: Layers
    without_namespaces: str
    """Why there are no namespaces, in a line; empty where there are."""


def had_here() -> Had:
    """The layers that a program is held by here: a fork server is started and says so.

    Raises:
        NotStarted: no fork server starts, with or without namespaces.
    """
    why = ""
    for namespaces in (True, False):
        try:
            server = start("program", SandboxSettings(), namespaces=namespaces)
        except NotStarted as error:
            if not namespaces:
                raise
            why = str(error)
            continue
        server.close()
        return Had(server.layers, why)
    raise AssertionError("returned or raised by now")

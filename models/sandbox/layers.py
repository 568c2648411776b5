"""Detection, by trial, of the layers that this machine has for the sandbox."""

from __future__ import annotations

from dataclasses import dataclass

from models.sandbox.fork_servers import Layers, NotStarted, start
from models.sandbox.settings import SandboxSettings


@dataclass(frozen=True)
class Isolation:
    """Layers available on this machine."""

    layers: Layers
    without_namespaces: str
    """Reason for missing namespaces, in one line; empty if they are available."""


def available_layers() -> Isolation:
    """Start a fork server, with namespaces if possible, and return the layers that it reports.

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
        return Isolation(server.layers, why)
    raise AssertionError("returned or raised by now")

"""The errors that a request over HTTP can fail with, the same for all clients, and the openers for requests.

`http.client` has errors of its own for an answer that breaks off and for a server that speaks another protocol. They
are not instances of OSError: code that catches only OSError lets them through.
"""

from __future__ import annotations

import http.client
import urllib.error
import urllib.request
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

NO_ANSWER = (OSError, http.client.HTTPException, ValueError)
"""Errors if a server is unavailable, breaks off or speaks another protocol, or a request cannot be sent to it."""
LOOPBACK = ("127.0.0.1", "localhost", "::1")
"""Hosts of this machine, in the form in which HTTP clients read them in NO_PROXY."""
SHOWN = 300
"""Bytes of a server's message with a refusal that are shown."""


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *given: Any) -> None:
        return None


STRAIGHT = urllib.request.build_opener(_NoRedirect)
"""Opener that treats a redirect as a refusal: a request is only for the address that it was sent to."""
DIRECT = urllib.request.build_opener(urllib.request.ProxyHandler({}))
"""Opener without a proxy: for servers of this machine, which a proxy would look for on its own machine."""


def loopback_direct(environment: Mapping[str, str]) -> dict[str, str]:
    """Extend the exceptions from a proxy by the hosts of this machine.

    A proxy would look for 127.0.0.1 on its own machine. Clients read NO_PROXY or no_proxy: a value set in one counts
    for both.

    Returns:
        The new values of both; empty if everything is excepted already.
    """
    direct = {}
    for name, other in (("no_proxy", "NO_PROXY"), ("NO_PROXY", "no_proxy")):
        given = environment.get(name) or environment.get(other, "")
        hosts = [host for text in given.split(",") if (host := text.strip())]
        if "*" not in hosts:
            direct[name] = ",".join([*hosts, *(host for host in LOOPBACK if host not in hosts)])
    return direct


def answer_here(url: str, seconds: float = 5.0) -> bytes | None:
    """Return the answer of a server of this machine to a GET; None if its answer is not complete, or a refusal."""
    with suppress(*NO_ANSWER), DIRECT.open(url, timeout=seconds) as answer:
        return bytes(answer.read())
    return None


def refusal(error: urllib.error.HTTPError) -> str:
    """Return the status of a refusal and the server's message, as far as it can be read."""
    said = b""
    with error, suppress(*NO_ANSWER):
        said = error.read(SHOWN)
    return f"{error.code} {said.decode(errors='replace')}".strip()

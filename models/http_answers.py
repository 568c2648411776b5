"""What asking over HTTP can fail by, the same for all who ask, and the openers that they ask with.

`http.client` has errors of its own for an answer that breaks off and for a server that speaks another protocol, and
they are no OSError: whoever catches OSError alone lets them through.
"""

from __future__ import annotations

import http.client
import urllib.error
import urllib.request
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

NO_ANSWER = (OSError, http.client.HTTPException, ValueError)
"""What is raised where a server is away, breaks off or speaks something else, or a request cannot be sent to it."""
LOOPBACK = ("127.0.0.1", "localhost", "::1")
"""Hosts of this machine, as clients of HTTP find them in NO_PROXY."""
SHOWN = 300
"""Bytes of what a server says with a refusal."""


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *given: Any) -> None:
        return None


STRAIGHT = urllib.request.build_opener(_NoRedirect)
"""Takes a redirect for a refusal: what is sent to one address is not for whoever it points to."""
DIRECT = urllib.request.build_opener(urllib.request.ProxyHandler({}))
"""Goes through no proxy: for servers of this machine, which a proxy would look for on its own."""


def loopback_direct(environment: Mapping[str, str]) -> dict[str, str]:
    """Extend the exceptions from a proxy by the hosts of this machine.

    A proxy would look for 127.0.0.1 on its own machine. Clients read NO_PROXY or no_proxy: what is set in one counts
    for both.

    Returns:
        The new values of both; of neither where everything is excepted already.
    """
    direct = {}
    for name, other in (("no_proxy", "NO_PROXY"), ("NO_PROXY", "no_proxy")):
        given = environment.get(name) or environment.get(other, "")
        hosts = [host for text in given.split(",") if (host := text.strip())]
        if "*" not in hosts:
            direct[name] = ",".join([*hosts, *(host for host in LOOPBACK if host not in hosts)])
    return direct


def answer_here(url: str, seconds: float = 5.0) -> bytes | None:
    """What a server of this machine answers to a GET; None where it gives no whole answer, or refuses."""
    with suppress(*NO_ANSWER), DIRECT.open(url, timeout=seconds) as answer:
        return bytes(answer.read())
    return None


def refusal(error: urllib.error.HTTPError) -> str:
    """The status of a refusal and what the server says with it, as far as that can be read."""
    said = b""
    with error, suppress(*NO_ANSWER):
        said = error.read(SHOWN)
    return f"{error.code} {said.decode(errors='replace')}".strip()

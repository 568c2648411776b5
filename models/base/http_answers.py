"""Errors, and `urllib` openers, that all HTTP clients of this project share.

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
from urllib.parse import urlsplit

NO_ANSWER = (OSError, http.client.HTTPException, ValueError)
"""Exceptions of a request without an answer: server unavailable, connection broken, other protocol, bad request."""
LOOPBACK = ("127.0.0.1", "localhost", "::1")
"""Names of this machine for NO_PROXY, in the form that HTTP clients read."""
SHOWN = 300
"""Maximum number of bytes shown of the message in a server's error response."""


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *arguments: Any) -> None:
        return None


class _ProxyForOthers(urllib.request.ProxyHandler):
    """The proxies of the environment, for all hosts but this machine."""

    def proxy_open(self, req: urllib.request.Request, proxy: str, type: str) -> Any:
        here = urlsplit(req.full_url).hostname in LOOPBACK
        return None if here else super().proxy_open(req, proxy, type)  # None: another handler opens it


STRAIGHT = urllib.request.build_opener(_NoRedirect, _ProxyForOthers)
"""Opener that treats a redirect as an error: a request is only for the address that it was sent to. No proxy gets a
request for this machine."""
DIRECT = urllib.request.build_opener(urllib.request.ProxyHandler({}))
"""Opener that uses no proxy, for servers on this machine, which a proxy would look for on its own machine."""


def loopback_direct(environment: Mapping[str, str]) -> dict[str, str]:
    """Return NO_PROXY and no_proxy extended by the hosts of this machine.

    A proxy would look for 127.0.0.1 on its own machine. Clients read NO_PROXY or no_proxy: a value set in one counts
    for both.

    Returns:
        The new values of both; empty if they except all hosts already.
    """
    direct = {}
    for name, other in (("no_proxy", "NO_PROXY"), ("NO_PROXY", "no_proxy")):
        value = environment.get(name) or environment.get(other, "")
        hosts = [host for text in value.split(",") if (host := text.strip())]
        if "*" not in hosts:
            direct[name] = ",".join([*hosts, *(host for host in LOOPBACK if host not in hosts)])
    return direct


def answer_here(url: str, seconds: float = 5.0) -> bytes | None:
    """Send a GET request to a server on this machine and return the body; None if it fails or is refused."""
    with suppress(*NO_ANSWER), DIRECT.open(url, timeout=seconds) as answer:
        return bytes(answer.read())
    return None


def refusal(error: urllib.error.HTTPError) -> str:
    """Return the status of an error response with the server's message, as far as it can be read."""
    message = b""
    with error, suppress(*NO_ANSWER):
        message = error.read(SHOWN)
    return f"{error.code} {message.decode(errors='replace')}".strip()

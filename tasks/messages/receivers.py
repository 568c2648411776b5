"""The receivers of events: URLs in the environment, of which only the host is shown, as a URL may contain a token."""

from __future__ import annotations

import hashlib
import os
import urllib.error
import urllib.request
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from models.base.errors import UserError
from models.base.http_answers import NO_ANSWER, STRAIGHT

URLS = "REWARDFLOW_NOTIFY_URL"
"""Addresses that events are posted to, separated by spaces."""
BLOCK = "rewardflow-notify"
"""Name, without its number, of Prefect's blocks that store an address (flows/schedule/automations.py)."""
SECONDS = 5.0
"""Time limit for a connection, and for each answer on it, seconds."""


@dataclass(frozen=True)
class Receiver:
    """An address that accepts events as JSON."""

    url: str = field(repr=False)

    @property
    def host(self) -> str:
        """The part that may be shown."""
        return urlsplit(self.url).hostname or "?"

    @property
    def name(self) -> str:
        """Name of its folder: the host, and a hash that distinguishes two addresses of one host."""
        return f"{self.host}-{hashlib.sha256(self.url.encode()).hexdigest()[:12]}"


class NotDelivered(Exception):
    """A receiver did not accept an event; `for_good`: it will never accept this event."""

    def __init__(self, why: str, for_good: bool = False) -> None:
        super().__init__(why)
        self.for_good = for_good


def receivers() -> list[Receiver]:
    """Return the receivers in the environment.

    Raises:
        UserError: an address is invalid. The message does not repeat it, as it may contain a token.
    """
    urls = os.environ.get(URLS, "").split()
    for number, url in enumerate(urls, 1):
        try:
            parts = urlsplit(url)
            valid = parts.scheme in ("http", "https") and bool(parts.hostname)
        except ValueError:
            valid = False
        if not valid:
            raise UserError(f"{URLS}: address {number} must begin with http:// or https:// and have a host")
    return [Receiver(url) for url in dict.fromkeys(urls)]


def post(receiver: Receiver, content: bytes, seconds: float = SECONDS) -> None:
    """Post an event.

    Raises:
        NotDelivered: there was no answer, or the event was not accepted. The message does not contain the address.
    """
    request = urllib.request.Request(
        receiver.url, data=content, headers={"Content-Type": "application/json"}, method="POST"
    )
    try:
        with STRAIGHT.open(request, timeout=seconds) as answer:
            status = int(answer.status)
    except urllib.error.HTTPError as error:
        error.close()
        status = error.code
    except NO_ANSWER as error:
        reason = getattr(error, "reason", error)
        detail = type(reason).__name__ if not isinstance(reason, OSError) else reason.strerror or type(reason).__name__
        raise NotDelivered(f"{receiver.host} does not answer ({detail})") from None
    if not 200 <= status < 300:
        # Too large or malformed: the next try would be refused as well, and later events must not wait for ever.
        raise NotDelivered(f"{receiver.host} answered {status}", for_good=status in (400, 413, 422))

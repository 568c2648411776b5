"""A JSON client for HTTP servers of OpenAI's protocol, with retries, a time limit per request, and a key from the
environment.

The key is the value of an environment variable that the caller names; it appears in no recipe, log or error. Redirects
are refused, because they would send the key to another server.
"""

from __future__ import annotations

import json
import os
import time
import urllib.error
import urllib.request
from typing import Any

from models.base.http_answers import NO_ANSWER, STRAIGHT, refusal

TRIES = 3
"""Number of attempts before a server counts as unavailable."""
WAIT = 2.0
"""Seconds before the second attempt; doubled before each further one."""
LARGEST = 64 * 1024 * 1024
"""Maximum size of an answer, bytes."""


class NoAnswer(Exception):
    """Error for a server that does not answer after all tries, refuses, or sends an invalid answer; names server and
    reason."""


def ask_json(
    url: str,
    body: Any = None,
    *,
    key_variable: str,
    seconds: float,
    tries: int = TRIES,
    optional: bool = False,
) -> Any:
    """Send a request and return the JSON of the answer; without a body it is a GET request.

    Args:
        url: address of the request.
        body: sent as JSON.
        key_variable: environment variable whose value is sent as the bearer token; no token is sent if it is not set.
        seconds: time limit of one request.
        tries: maximum number of requests while the server is unavailable or overloaded.
        optional: whether the server may lack the address; None is returned then.

    Raises:
        NoAnswer: it does not answer after all tries, refuses, or sends an invalid answer; or the key is invalid.
    """
    headers = {"Content-Type": "application/json"}
    if key := os.environ.get(key_variable):
        if not (key.isascii() and key.isprintable()):  # http.client would reject it too, but show the key
            raise NoAnswer(
                f"no request was sent to {url}: {key_variable} holds a line break or another character that a header "
                "cannot have"
            )
        headers["Authorization"] = f"Bearer {key}"
    data = None if body is None else json.dumps(body).encode()
    reason = ""
    for attempt in range(tries):
        if attempt:
            time.sleep(WAIT * 2 ** (attempt - 1))
        try:
            request = urllib.request.Request(url, data, headers)
            with STRAIGHT.open(request, timeout=seconds) as answer:
                return json.loads(answer.read(LARGEST))
        except urllib.error.HTTPError as error:
            if optional and error.code in (404, 405):
                return None
            reason = refusal(error)
            if error.code < 500 and error.code not in (408, 429):
                break
        except (*NO_ANSWER, RecursionError) as error:  # JSON may be nested too deeply
            reason = str(error) or type(error).__name__
    raise NoAnswer(f"{url} does not answer as it should ({' '.join(reason.split())[:200]})")


def names_of(listed: Any) -> list[str]:
    """Return the model names in a server's answer to `/models`; empty if the answer is not a list of models."""
    entries = listed.get("data") if isinstance(listed, dict) else None
    names = [entry.get("id") for entry in entries if isinstance(entry, dict)] if isinstance(entries, list) else []
    return [name for name in names if isinstance(name, str)]

"""JSON asked of an HTTP server of OpenAI's protocol: some tries, a time limit for each, a key from the environment.

The key is the value of an environment variable that the caller names; it stands in no recipe, log or error. Redirects
are refused: they would carry the key to another server.
"""

from __future__ import annotations

import json
import os
import time
import urllib.error
import urllib.request
from typing import Any

from models.http_answers import NO_ANSWER, STRAIGHT, refusal

TRIES = 3
"""Requests that are made before a server counts as away."""
WAIT = 2.0
"""Seconds before the second try; twice as many before each further one."""
LARGEST = 64 * 1024 * 1024
"""Bytes of an answer."""


class NoAnswer(Exception):
    """A server that does not answer after some tries, refuses, or answers with something else. Says which and why."""


def ask_json(
    url: str,
    body: Any = None,
    *,
    key_variable: str,
    seconds: float,
    tries: int = TRIES,
    optional: bool = False,
) -> Any:
    """The JSON that a server answers; a GET where there is no body.

    Args:
        url: where.
        body: is sent as JSON.
        key_variable: environment variable whose value is sent as the bearer token; none is, where it is not set.
        seconds: that one request may take.
        tries: requests that are made, as long as it is away or overloaded.
        optional: whether the server may not know the address: None then.

    Raises:
        NoAnswer: it does not answer after all tries, refuses, or answers with something else; or the key is none.
    """
    headers = {"Content-Type": "application/json"}
    if key := os.environ.get(key_variable):
        if not (key.isascii() and key.isprintable()):  # http.client would say so itself, and show the key
            raise NoAnswer(f"{url} is not asked: {key_variable} holds a line break or another character of no header")
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
    """Names of the models that a server lists (`/models`); none where it is no such list."""
    entries = listed.get("data") if isinstance(listed, dict) else None
    names = [entry.get("id") for entry in entries if isinstance(entry, dict)] if isinstance(entries, list) else []
    return [name for name in names if isinstance(name, str)]

"""An environment of OpenEnv: a server that speaks its protocol, or an image of one.

    url      ws://127.0.0.1:8000/ws, a session for each episode
    reset    {"type": "reset", "data": {"seed": 7}}             {"observation": {...}, "reward": null, "done": false}
    step     {"type": "step", "data": {"message": "the turn"}}  {"observation": {...}, "reward": 0.5, "done": true}

The policy reads the texts of the observation. Its turn is one field of the action, or the whole action as JSON. Nothing
of OpenEnv is installed here; the server has the package. An image is started by docker or podman, once per process.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from typing import Annotated, Any
from urllib.parse import urlsplit

from pydantic import Field

from models.agents.foreign.images import address_of
from models.base.errors import UserError, listed, shortened
from models.base.finite import finite_of_json
from models.base.http_answers import answer_here
from models.method.environment import Environment, EnvironmentAnswer, EnvironmentEpisode, Info
from models.method.problem import Problem
from models.method.registry import part

SETTING = "rollouts.environment"
LARGEST = 16 * 1024 * 1024
"""Maximum size of an answer, bytes."""
SEEDS = 1 << 31
"""Seeds are below this number, as some environments need them."""
_OUTER = ("metadata", "done", "reward")


@part("openenv")
class OpenEnv(Environment):
    """An environment of OpenEnv."""

    url: str = ""
    """Address of its server on this machine, such as http://127.0.0.1:8000."""
    image: str = ""
    """Alternative to an address: image of a server, started by docker or podman. With a digest (NAME@sha256:...), it is
    pinned."""
    version: str = ""
    """Version that the server must report at /metadata. Empty: any, and then the recipe does not determine it."""
    turn_field: str = ""
    """Field of the action that the policy's turn becomes. Empty: the action's only required text, or else the turn is
    the action as a JSON object."""
    action: dict[str, Any] = field(default_factory=dict)
    """Further fields of every action."""
    reset: dict[str, Any] = field(default_factory=dict)
    """Further parameters of every reset. Those in a problem's answer, as a JSON object, are added; a `seed` among them
    replaces that of the episode."""
    reads: tuple[str, ...] = ()
    """Fields of the observation that the policy reads. Empty: its text fields, or all if there is none."""
    solved_at: Annotated[float, Field(ge=-1e9, le=1e9)] = 1.0
    """Sum of rewards from which an episode counts as solved."""
    seconds: Annotated[float, Field(gt=0, le=3600)] = 60.0
    """Time limit of one exchange with the server, seconds."""

    def try_out(self) -> None:
        """Connect to the server.

        Raises:
            UserError: neither or both of address and image are named, the server cannot be reached, has another
                version, or no field of the action can be chosen.
        """
        _server_of(self)

    def open(self, problem: Problem) -> EnvironmentEpisode:
        """Open a session.

        Raises:
            UserError: see `try_out`; or the problem's answer is not a JSON object.
        """
        parameters: Any = {}
        if problem.answer:
            try:
                parameters = json.loads(problem.answer)
            except (ValueError, RecursionError):
                parameters = None
        if not isinstance(parameters, dict):
            raise UserError(
                f"problem {shortened(problem.id)}: the answer is none of environment openenv: a JSON object with "
                'parameters of a reset is wanted, such as {"seed": 7}, or nothing'
            )
        return _Session(self, _server_of(self), {**self.reset, **parameters})


@dataclass(frozen=True)
class _Server:
    """A server that answers."""

    address: str
    """Its address, without a slash at the end."""
    field: str
    """Field of the action that a turn becomes; empty: the turn is the action."""


def _server_of(settings: OpenEnv) -> _Server:
    if bool(settings.url) == bool(settings.image):
        raise UserError(f"{SETTING}: openenv needs the url of a server or an image; name one of them")
    if settings.url:
        parts = urlsplit(settings.url)
        if parts.scheme != "http" or parts.hostname not in ("127.0.0.1", "::1", "localhost"):
            raise UserError(f"{SETTING}.url: {shortened(settings.url)} is not an http address on this machine")
        address = settings.url.rstrip("/")
    else:
        address = address_of(settings.image, f"{SETTING}.image")
    return _described(address, settings.turn_field, settings.version)


@cache
def _described(address: str, field: str, version: str) -> _Server:
    """Return the server at an address after a check of its version and of the action's field."""
    if version and (has := _get(address, "/metadata").get("version")) != version:
        raise UserError(f"{SETTING}.version: {version} is wanted, but the server at {address} reports {has}")
    action = _get(address, "/schema").get("action")
    fields: Mapping[str, Any] = action.get("properties", {}) if isinstance(action, dict) else {}
    if field and fields and field not in fields:
        raise UserError(f"{SETTING}.turn_field: the action has no field {field!r}; there is {listed([*fields])}")
    required = action.get("required", []) if isinstance(action, dict) else []
    texts = [name for name in required if fields.get(name, {}).get("type") == "string"]
    return _Server(address, field or (texts[0] if len(required) == len(texts) == 1 else ""))


def _get(address: str, path: str) -> Mapping[str, Any]:
    content = answer_here(address + path)
    try:
        answer = None if content is None else json.loads(content)
    except (ValueError, RecursionError):
        answer = None
    if not isinstance(answer, dict):
        raise UserError(f"{SETTING}: no server of OpenEnv answers at {address}{path}; start it, or change the address")
    return answer


class _Session:
    """An episode: a connection to the server."""

    def __init__(self, settings: OpenEnv, server: _Server, parameters: Mapping[str, Any]) -> None:
        self._settings, self._server, self._parameters = settings, server, parameters
        self._connection: Any = None
        self._closing = threading.Lock()
        self._total = 0.0

    def reset(self, seed: int) -> tuple[str, Info]:
        from websockets.sync.client import connect

        address = f"ws{self._server.address.removeprefix('http')}/ws"
        try:
            self._connection = connect(
                address, open_timeout=self._settings.seconds, max_size=LARGEST, compression=None, proxy=None
            )
        except Exception as error:  # the library has many errors of its own
            reason = shortened(str(error), 200) or type(error).__name__
            raise UserError(f"{SETTING}: the server at {self._server.address} takes no session ({reason})") from None
        text, _, _ = self._ask({"type": "reset", "data": {"seed": seed % SEEDS, **self._parameters}})
        return text, {}

    def step(self, turn: str) -> EnvironmentAnswer:
        if self._server.field:
            action = {**self._settings.action, self._server.field: turn}
        else:
            try:
                given = json.loads(turn)
            except (ValueError, RecursionError):
                given = None
            if not isinstance(given, dict):
                return "error: write the action as a JSON object", 0.0, False, False, {}
            action = {**given, **self._settings.action}
        text, reward, over = self._ask({"type": "step", "data": action})
        self._total += reward
        return text, reward, over, False, {"solved": self._total >= self._settings.solved_at}

    def close(self) -> None:
        with self._closing:
            connection, self._connection = self._connection, None
        if connection is not None:
            connection.close_timeout = 1.0
            connection.close()

    def _ask(self, message: Mapping[str, Any]) -> tuple[str, float, bool]:
        """Send a message. Returns the text of the observation, the reward, and whether the episode is over."""
        connection = self._connection
        if connection is None:
            raise ConnectionError("the session is closed")
        from websockets.exceptions import ConnectionClosed

        with suppress(ConnectionClosed):  # a server without a free session closes at once; its reason can still be read
            connection.send(json.dumps(message))
        answer = json.loads(connection.recv(timeout=self._settings.seconds))
        if not isinstance(answer, dict) or not isinstance(answer.get("data"), dict):
            raise ValueError(f"the server's answer is not a message of OpenEnv: {shortened(str(answer), 100)}")
        data = answer["data"]
        if answer.get("type") == "error":
            if data.get("code") == "CAPACITY_REACHED":
                raise UserError(
                    f"{SETTING}: the server at {self._server.address} has no session left for another episode "
                    f"({shortened(_reason(data), 100)}); start it with a larger max_concurrent_envs"
                )
            if data.get("code") == "VALIDATION_ERROR" and message["type"] == "step":
                return f"error: {_reason(data)}", 0.0, False
            raise ValueError(f"the server reports {shortened(_reason(data), 200)}")
        observation = data.get("observation")
        if not isinstance(observation, dict):
            raise ValueError("the server's answer has no observation")
        reward = data.get("reward")
        return self._text(observation), 0.0 if reward is None else finite_of_json(reward), bool(data.get("done"))

    def _text(self, observation: Mapping[str, Any]) -> str:
        fields = {name: value for name, value in observation.items() if name not in _OUTER}
        chosen = self._settings.reads or [name for name, value in fields.items() if isinstance(value, str)] or [*fields]
        values = [fields[name] for name in chosen if fields.get(name) not in (None, "")]
        return "\n".join(value if isinstance(value, str) else json.dumps(value) for value in values)


def _reason(data: Mapping[str, Any]) -> str:
    details = data.get("errors")
    first = details[0] if isinstance(details, list) and details and isinstance(details[0], dict) else {}
    place = ".".join(map(str, first.get("loc", ())))
    return f"{place}: {first['msg']}" if place and "msg" in first else str(data.get("message", "an error"))

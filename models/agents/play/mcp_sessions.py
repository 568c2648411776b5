"""Sessions with MCP servers: opened once per process, started again when the server ends, closed with the process.

A server is a command, used over its standard input and output, or an address on loopback (streamable HTTP). All
sessions run on one event loop in a thread of its own; a call waits for its answer up to a limit of seconds. A session
that broke or did not answer is not used again: the next call opens another, up to a number of times.
"""

from __future__ import annotations

import asyncio
import atexit
import logging
import os
import threading
from collections.abc import Coroutine, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from functools import cache
from typing import Any, TypeVar

from models.base.errors import UserError, shortened

_LOG = logging.getLogger("rewardflow.episodes")
Result = TypeVar("Result")

TO_START = 30.0
"""Seconds that a server may take until it has listed its tools."""


class ServerLost(Exception):
    """Error of a call without an answer: the server or the connection ended."""


@dataclass(frozen=True)
class ServerAddress:
    """Command or address of a server."""

    command: tuple[str, ...]
    """Command that is started on this machine; empty if there is an address."""
    address: str
    """Address of a server that is already running."""
    restarts: int
    """How often it may be started again, or connected to again."""

    def __str__(self) -> str:
        return " ".join(self.command) or self.address


@dataclass(frozen=True)
class Described:
    """A tool, as described by its server."""

    name: str
    description: str
    schema: Mapping[str, Any]
    """JSON schema of its arguments."""


class Session:
    """A session with a server, which is used for the lifetime of the process."""

    def __init__(self, address: ServerAddress) -> None:
        """Create the session without opening it."""
        self._address = address
        self._lock = threading.Lock()
        self._open: _Open | None = None
        self.opened = 0
        """How often a session was opened."""

    def tools(self) -> list[Described]:
        """Return the tools of the server, which are listed once per session.

        Raises:
            ServerLost: it cannot be reached, or has been started as often as allowed.
        """
        return self._current().tools

    def call(self, tool: str, arguments: Mapping[str, Any], seconds: float) -> tuple[str, bool]:
        """Call a tool. Returns its answer, and whether that is an error.

        Raises:
            TimeoutError: it did not answer in time.
            ServerLost: it ended, cannot be reached, or has been started as often as allowed.
        """
        current = self._current()
        try:
            return _on_loop(current.call(tool, dict(arguments)), seconds)
        except BaseException as error:  # a limit of the caller, too, leaves a session that still waits
            self._drop(current)
            if isinstance(error, TimeoutError) or not isinstance(error, Exception):
                raise
            raise ServerLost(f"{type(error).__name__}: {shortened(str(error), 200)}") from None

    def close(self) -> None:
        """End the session, and the server if it was started here."""
        if self._open is not None:
            self._drop(self._open)

    def _current(self) -> _Open:
        with self._lock:
            if self._open is None:
                if self.opened > self._address.restarts:
                    raise ServerLost(f"{self._address} has been started {self.opened} times")
                self.opened += 1
                if self.opened > 1:
                    _LOG.warning("MCP server %s: session %d of this process", self._address, self.opened)
                made = _Open(self._address)
                try:
                    made.start()
                except Exception as error:
                    made.stop()
                    raise ServerLost(f"{type(error).__name__}: {shortened(str(error), 200)}") from None
                self._open = made
            return self._open

    def _drop(self, current: _Open) -> None:
        with self._lock:
            if self._open is current:
                self._open = None
        current.stop()


class _Open:
    """An open session. It is entered and left in one task, as its library requires."""

    def __init__(self, address: ServerAddress) -> None:
        self._address = address
        self._leave = asyncio.Event()
        self._ready: Future[None] = Future()
        self._client: Any = None
        self._task: Future[None] | None = None
        self.tools: list[Described] = []

    def start(self) -> None:
        """Open the session and list the server's tools."""
        self._task = asyncio.run_coroutine_threadsafe(self._live(), _loop())
        self._ready.result(TO_START)

    def stop(self) -> None:
        """Let the task leave; a server that does not end by itself is ended by the library."""
        _loop().call_soon_threadsafe(self._leave.set)

    async def call(self, tool: str, arguments: dict[str, Any]) -> tuple[str, bool]:
        """Call a tool; see `Session.call`."""
        answering = asyncio.ensure_future(self._client.call_tool(tool, arguments))
        leaving = asyncio.ensure_future(self._leave.wait())
        done, _ = await asyncio.wait({answering, leaving}, return_when=asyncio.FIRST_COMPLETED)
        if answering not in done:
            answering.cancel()
            raise ConnectionError("the session was closed")
        leaving.cancel()
        result = answering.result()
        text = "\n".join(block.text for block in result.content if getattr(block, "type", "") == "text")
        return text, bool(result.is_error)

    async def _live(self) -> None:
        from mcp import Client, StdioServerParameters
        from mcp.client.stdio import stdio_client

        try:
            with open(os.devnull, "w") as nowhere:
                server: Any = self._address.address
                if self._address.command:
                    command, *arguments = self._address.command
                    server = stdio_client(StdioServerParameters(command=command, args=arguments), errlog=nowhere)
                async with Client(server) as client:
                    self._client = client
                    listed = await client.list_tools()
                    self.tools = [
                        Described(tool.name, tool.description or "", tool.input_schema or {}) for tool in listed.tools
                    ]
                    self._ready.set_result(None)
                    await self._leave.wait()
        except BaseException as error:
            if not self._ready.done():
                self._ready.set_exception(_plain(error))
            else:
                _LOG.debug("an MCP session ended (%s)", type(error).__name__)
        finally:
            self._leave.set()


def _plain(error: BaseException) -> Exception:
    """Return the first error of a group of errors."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error if isinstance(error, Exception) else ConnectionError(type(error).__name__)


@cache
def _loop() -> asyncio.AbstractEventLoop:
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, name="mcp", daemon=True).start()
    return loop


def _on_loop(work: Coroutine[Any, Any, Result], seconds: float) -> Result:
    future = asyncio.run_coroutine_threadsafe(work, _loop())
    try:
        return future.result(seconds)
    except BaseException:
        future.cancel()
        raise


_SESSIONS: dict[ServerAddress, Session] = {}
_LOCK = threading.Lock()


def session_with(address: ServerAddress) -> Session:
    """Return the process's session with a server."""
    with _LOCK:
        return _SESSIONS.setdefault(address, Session(address))


def close_all(sessions: Sequence[Session] | None = None) -> None:
    """Close sessions; all sessions of the process if None."""
    for session in _SESSIONS.values() if sessions is None else sessions:
        session.close()


atexit.register(close_all)


def require_loopback(address: str, setting: str) -> None:
    """Raise an error for an address that is not on this machine.

    Raises:
        UserError: it is not an http address, or is on another machine.
    """
    from urllib.parse import urlsplit

    parts = urlsplit(address)
    if parts.scheme != "http" or parts.hostname not in ("127.0.0.1", "::1", "localhost"):
        raise UserError(
            f"{setting}: {shortened(address)} is not an http address on loopback, such as http://127.0.0.1:1/mcp"
        )

"""The tools of any MCP server (Model Context Protocol): a command here, or an address on loopback.

    add: {"a": 2, "b": 3}      5
    shout: hello               HELLO       the one argument of a tool that takes one needs no JSON

The tools appear by their own names, with the arguments of their schemas. A session is opened once per process, not once
per call. A server that ends is started again, a number of times, and the policy reads that its call was lost. A server
that does not answer ends the episode of the call, and is started again for the others. The command is trusted like the
recipe that names it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import partial
from typing import Annotated, Any

from pydantic import Field

from models.agents.play.mcp_sessions import (
    Described,
    ServerAddress,
    ServerLost,
    Session,
    require_loopback,
    session_with,
)
from models.base.errors import UserError, listed
from models.base.source_code import GivenFile, texts_in_command
from models.method.recipe_paths import Command
from models.method.registry import part
from models.method.tool import Offer, Tool, ToolError

SETTING = "rollouts.environment.tool"


@part("mcp")
class Mcp(Tool):
    """The tools of an MCP server."""

    command: Command = ()
    """The server and its arguments; it communicates over its standard input and output. Files that it names are
    identified by their content; files that those import are not."""
    address: str = ""
    """Alternative to a command: the address of a server on this machine, such as http://127.0.0.1:8000/mcp."""
    only: tuple[str, ...] = ()
    """Names of the tools that the policy may call; empty: all."""
    seconds: Annotated[float, Field(gt=0, le=3600)] = 5.0
    """Time limit of a call in seconds; below `rollouts.seconds`."""
    restarts: Annotated[int, Field(ge=0, le=10_000)] = 10
    """How often a process starts a lost server again."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "_texts", texts_in_command(self.command))

    @property
    def given(self) -> tuple[GivenFile, ...]:
        """The files that the command names, as they were when the recipe was read."""
        texts: tuple[GivenFile, ...] = vars(self)["_texts"]
        return texts

    def try_out(self) -> None:
        """List the server's tools.

        Raises:
            UserError: neither or both of command and address are named, the address is not on this machine, the server
                cannot be started, or lacks a tool in `only`.
        """
        if bool(self.command) == bool(self.address):
            raise UserError(f"{SETTING}: mcp needs a command or an address; name one of them")
        if self.address:
            require_loopback(self.address, f"{SETTING}.address")
        try:
            self.offers()
        except ServerLost as error:
            raise UserError(f"{SETTING}: the MCP server {' '.join(self.command) or self.address}: {error}") from None

    def offers(self) -> Mapping[str, Offer]:
        """Return the server's tools, by their names."""
        described = {tool.name: tool for tool in self._session.tools()}
        if strangers := [name for name in self.only if name not in described]:
            raise UserError(f"{SETTING}.only: the server has no tool {strangers[0]!r}; there is {listed([*described])}")
        return {
            name: Offer(usage_of(tool), partial(self._ask, tool))
            for name, tool in described.items()
            if not self.only or name in self.only
        }

    def call(self, argument: str) -> str:
        """Raise a ToolError, because a server is called by the names of its tools."""
        raise ToolError("call one of the server's tools by its name")

    @property
    def _session(self) -> Session:
        return session_with(ServerAddress(self.command, self.address, self.restarts))

    def _ask(self, tool: Described, argument: str) -> str:
        try:
            text, failed = self._session.call(tool.name, arguments_of(tool, argument), self.seconds)
        except ServerLost:
            raise ToolError("the server was lost, and the call with it") from None
        if failed:
            raise ToolError(text or "the tool failed")
        return text


def usage_of(tool: Described) -> str:
    """Return the description and the arguments of a tool, in one line."""
    taken = [f"{name}: {_kind(entry)}" for name, entry in _properties(tool).items()]
    described = " ".join(tool.description.split())
    return f"{described} ({', '.join(taken)})".strip() if taken else described


def arguments_of(tool: Described, argument: str) -> dict[str, Any]:
    """Convert the policy's text after a tool's name to the tool's arguments.

    Raises:
        ToolError: it is not a JSON object, for a tool with several arguments.
    """
    properties, text = _properties(tool), argument.strip()
    if text.startswith("{"):
        try:
            given = json.loads(text)
        except (ValueError, RecursionError):
            raise ToolError("the arguments are not JSON") from None
        return dict(given)
    if not properties and not text:
        return {}
    wanted = list(properties) if len(properties) == 1 else list(tool.schema.get("required", ()))
    if len(wanted) != 1:
        raise ToolError(f"the arguments are a JSON object with {', '.join(properties) or 'nothing in it'}")
    (name,) = wanted
    if _kind(properties.get(name, {})) == "string":
        return {name: text}
    try:
        return {name: json.loads(text)}
    except (ValueError, RecursionError):
        raise ToolError(f"{name} is a {_kind(properties.get(name, {}))}") from None


def _properties(tool: Described) -> Mapping[str, Mapping[str, Any]]:
    properties: Mapping[str, Mapping[str, Any]] = tool.schema.get("properties", {})
    return properties


def _kind(entry: Mapping[str, Any]) -> str:
    return str(entry.get("type", "string"))

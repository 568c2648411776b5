"""An MCP server with a few tools. Some of them fail, exit or never reply."""

import os
import sys
import time

from mcp.server.mcpserver import MCPServer

server = MCPServer("facts")


@server.tool()
def add(a: int, b: int) -> str:
    """Adds two numbers."""
    return str(a + b)


@server.tool()
def shout(text: str) -> str:
    """Says it loudly."""
    return text.upper()


@server.tool()
def who() -> str:
    """The id of the process."""
    return str(os.getpid())


@server.tool()
def fail(text: str) -> str:
    """Always fails."""
    raise ValueError(f"no {text}")


@server.tool()
def die() -> str:
    """Ends the server."""
    os._exit(1)


@server.tool()
def hang() -> str:
    """Never answers."""
    time.sleep(600)
    return ""


if __name__ == "__main__":
    if len(sys.argv) > 1:
        server.run("streamable-http", host="127.0.0.1", port=int(sys.argv[1]))
    else:
        server.run()

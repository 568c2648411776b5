"""The command `rewardflow serve`."""

from __future__ import annotations

from typing import Annotated

import typer

from flows.runtime import collection
from flows.runtime.command_options import ModelOption, VersionArgument, meant_policy
from flows.runtime.environment import state_folder, writable_state_folder

PANEL = "Registry"


def serve(
    version: VersionArgument,
    options: Annotated[
        list[str] | None, typer.Argument(metavar="[-- OPTION...]", help="Options of vLLM's server, after `--`.")
    ] = None,
    model: ModelOption = "",
    host: Annotated[
        str, typer.Option("--host", help="Address to listen on. Any address other than loopback is open to others.")
    ] = ("127.0.0.1"),
    port: Annotated[int, typer.Option("--port", min=1, max=65535, help="Port to listen on.")] = 8000,
    drain: Annotated[
        float,
        typer.Option("--drain", min=0, help="Time that requests in flight may take after a stop signal, seconds."),
    ] = 60.0,
) -> None:
    """Serve a policy with vLLM's OpenAI server until Ctrl-C or SIGTERM; requests in flight are answered before it ends.

    On a CPU the model is not compiled, because compiling takes minutes; `-- --no-enforce-eager` compiles it.

    Example: `rewardflow serve champion`, or `rewardflow serve 3 --port 8001 -- --max-model-len 4096`
    """
    from flows.servers.serve_policy import PolicyEndpoint
    from flows.servers.serve_policy import serve as serve_policy
    from tasks.tracking import recorded, store

    collection.begin()
    store.open_for_reading(state_folder())
    record = recorded.recorded(version, lambda: meant_policy(model))
    serve_policy(record, writable_state_folder(), PolicyEndpoint(host, port, drain, tuple(options or ())))

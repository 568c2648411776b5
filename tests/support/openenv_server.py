"""A server of OpenEnv's protocol on loopback, of one game: the policy says a number that the seed determines."""

import json
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http import HTTPStatus
from typing import Any

from websockets.datastructures import Headers
from websockets.http11 import Request, Response
from websockets.sync.server import ServerConnection, serve

TEXT = {"type": "string"}
PAGES = {
    "/schema": {"action": {"properties": {"message": TEXT, "metadata": {"type": "object"}}, "required": ["message"]}},
    "/metadata": {"name": "secret", "description": "", "version": "1.2"},
}


@contextmanager
def openenv_server(pages: Mapping[str, Any] = PAGES, fault: str = "") -> Iterator[tuple[str, list[Any]]]:
    """Run the server. Yields its address, and the messages that it receives; `fault` is what its steps do."""
    messages: list[Any] = []

    def page(_: ServerConnection, request: Request) -> Response | None:
        if request.path == "/ws":
            return None
        content = json.dumps(pages.get(request.path, {})).encode()
        return Response(HTTPStatus.OK, "OK", Headers({"Content-Length": str(len(content))}), content)

    def play(connection: ServerConnection) -> None:
        secret = 0
        for text in connection:
            message = json.loads(text)
            messages.append(message)
            data = message["data"]
            if fault == "capacity":
                answer = {"type": "error", "data": {"message": "1/1 sessions active.", "code": "CAPACITY_REACHED"}}
            elif message["type"] == "reset":
                secret = data["seed"] % 10
                answer = _observed({"text": "Say a number.", "turn": 0, "metadata": {"a": 1}}, None, False)
            elif fault == "close":
                return
            elif fault == "hang":
                return time.sleep(5)
            elif fault == "garble":
                connection.send("no JSON")
                continue
            elif fault == "error":
                answer = {"type": "error", "data": {"message": "it broke\nthere", "code": "EXECUTION_ERROR"}}
            elif fault == "not a number":
                answer = _observed({}, "much", True)
            elif set(data) - {"message", "metadata"}:
                errors = [{"loc": ["colour"], "msg": "Extra inputs are not permitted"}]
                answer = {"type": "error", "data": {"message": "Invalid", "code": "VALIDATION_ERROR", "errors": errors}}
            else:
                right = data["message"].strip() == str(secret)
                answer = _observed({"text": "right" if right else "wrong", "turn": 1}, float(right), right)
            connection.send(json.dumps(answer))

    with serve(play, "127.0.0.1", 0, process_request=page, compression=None) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.socket.getsockname()[1]}", messages
        server.shutdown()


def _observed(observation: Mapping[str, Any], reward: Any, done: bool) -> dict[str, Any]:
    return {"type": "observation", "data": {"observation": observation, "reward": reward, "done": done}}

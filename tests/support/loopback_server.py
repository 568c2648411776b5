"""HTTP servers on loopback whose replies a test determines, so that the test sees the requests to an address."""

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@contextmanager
def answering(answer: Callable[[str, Any], tuple[int, object]]) -> Iterator[str]:
    """Run a server on loopback that answers every request with `answer(path, body)`, a status and an object."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers.get("Content-Length") or 0)) or b"null")
            status, values = answer(self.path, body)
            data = json.dumps(values).encode()
            with suppress(ConnectionError):  # the client has closed the connection
                self.send_response(status)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

        do_GET = do_POST

        def log_message(self, *given: str) -> None:
            pass

    with listening(Handler) as address:
        yield f"{address}/v1"


HALF_ANSWERS = {
    "another protocol": b"SSH-2.0-OpenSSH_9.9\r\n",
    "no byte": b"",
    "a line too long": b"HTTP/1.1 200 OK\r\nX: " + b"a" * 70_000 + b"\r\n\r\n",
    "cut off": b'HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\n{"server_',
    "cut chunk": b'HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nff\r\n{"a"',
}
"""Replies of a server that stops, crashes or does not use HTTP. `http.client` reports them by different errors."""
UNREADABLE_ANSWERS = {
    "no JSON": b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok",
    "nested too deeply": b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n" + b"[" * 100_000,
}
"""Complete replies whose body cannot be read."""
HALF_REFUSALS = {
    "cut chunk": b"HTTP/1.1 503 Busy\r\nTransfer-Encoding: chunked\r\n\r\nff\r\nx",
    "stalls": b"HTTP/1.1 503 Busy\r\nContent-Length: 100\r\n\r\nx",
}
"""Refusals whose body is cut off, or never completed if the connection stays open."""


@contextmanager
def sending(reply: Callable[[str], bytes], *, stalls: bool = False) -> Iterator[str]:
    """Run a server on loopback that sends `reply(path)` to every request, byte for byte, and closes the connection.

    Args:
        reply: returns the bytes to send.
        stalls: whether the connection stays open until the server closes, for a minute at most.
    """
    over = threading.Event()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length") or 0))
            with suppress(ConnectionError):
                self.wfile.write(reply(self.path))
            if stalls:
                over.wait(60)

        do_GET = do_POST

        def log_message(self, *given: str) -> None:
            pass

    with listening(Handler) as address:
        try:
            yield address
        finally:
            over.set()


@contextmanager
def listening(handler: type[BaseHTTPRequestHandler]) -> Iterator[str]:
    """Run a server with these handlers on loopback, and yield its address."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()

"""An HTTP server on loopback that speaks OpenAI's protocol; requests wait for the owner of the engine.

    POST /v1/chat/completions    messages -> choices, or a stream of server-sent events
    POST /v1/completions         prompt, as text or as token ids -> the same
    GET  /v1/models              the policy

The key of a request is `TOKEN.SESSION`: a random token of this server, and the episode that the call belongs to.
Nothing is logged here, least of all a key. A waiting request is answered, or refused when the server closes.
"""

from __future__ import annotations

import hmac
import json
import secrets
import sys
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from queue import SimpleQueue
from types import TracebackType
from typing import Any, Self

from models.agents.gateway.answers import MODEL, ProgramAnswer

HOST = "127.0.0.1"
LARGEST = 16 * 1024 * 1024
"""Maximum size of a request, bytes."""
_PATHS = ("/v1/chat/completions", "/v1/completions")


class Refused(Exception):
    """Error that answers a refused request."""

    def __init__(self, status: int, message: str, code: str = "") -> None:
        """Create the error.

        Args:
            status: HTTP status. Clients retry after 408, 409, 429 and from 500 on, and after no other.
            message: text for the reader of the program's output.
            code: the reason in a word.
        """
        super().__init__(message)
        self.status, self.code = status, code


@dataclass(eq=False)
class PendingRequest:
    """A request of a program that waits for its answer."""

    session: str
    chat: bool
    body: Mapping[str, Any]
    content: bytes
    """The body as it was sent."""
    _given: SimpleQueue[ProgramAnswer | Refused] = field(default_factory=SimpleQueue)

    def answer(self, reply: ProgramAnswer | Refused) -> None:
        """Answer the request, once."""
        self._given.put(reply)

    def wait(self) -> ProgramAnswer:
        """Wait for the answer and return it.

        Raises:
            Refused: the answer is an error.
        """
        reply = self._given.get()
        if isinstance(reply, Refused):
            raise reply
        return reply


@dataclass(frozen=True)
class ProgramEnd:
    """Event for a program that has ended."""

    session: str
    result: Any
    """Its result; an exception if it failed."""


class Gateway:
    """The HTTP server, which is open inside `with Gateway() as gateway`."""

    def __init__(self) -> None:
        self.events: SimpleQueue[PendingRequest | ProgramEnd] = SimpleQueue()
        """Requests of programs, and their ends."""
        self._token = secrets.token_urlsafe(32)
        self._open = threading.Lock()
        self._waiting: set[PendingRequest] | None = set()
        self._server = _Server((HOST, 0), _handler_of(self))
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)

    @property
    def address(self) -> str:
        """Base address of the server, in the form that clients of OpenAI's protocol expect."""
        return f"http://{HOST}:{self._server.server_port}/v1"

    def key(self, session: str) -> str:
        """Return the key with which a program of that session authenticates itself."""
        return f"{self._token}.{session}"

    def hidden(self, text: str) -> str:
        """Replace the server's token in a text, for logs."""
        return text.replace(self._token, "...")

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        with self._open:
            waiting, self._waiting = self._waiting or set(), None
        for request in waiting:
            request.answer(Refused(403, "the round is over", "closed"))
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def session_of(self, authorization: str) -> str:
        """Return the session that a request's key names, after a check of its token.

        Raises:
            Refused: the token is invalid.
        """
        kind, _, key = authorization.partition(" ")
        token, _, session = key.strip().rpartition(".")
        if kind.lower() != "bearer" or not hmac.compare_digest(token.encode(), self._token.encode()):
            raise Refused(401, "the key is not this server's", "invalid_api_key")
        return session

    def ask(self, request: PendingRequest) -> ProgramAnswer:
        """Put a request into `events`, wait for its answer and return it.

        Raises:
            Refused: it is refused, or the server closes.
        """
        with self._open:
            if self._waiting is None:
                raise Refused(403, "the round is over", "closed")
            self._waiting.add(request)
        self.events.put(request)
        try:
            return request.wait()
        finally:
            with self._open:
                if self._waiting is not None:
                    self._waiting.discard(request)


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 1024
    """Connections that wait to be accepted: every program may open several at once, and more would be refused."""

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Print nothing about a client that ended its connection; print any other error as usual."""
        if not isinstance(sys.exception(), OSError):
            super().handle_error(request, client_address)


def _handler_of(gateway: Gateway) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True
        """Each event of a stream is sent at once."""

        def log_message(self, format: str, *args: Any) -> None:
            return None

        def do_GET(self) -> None:
            self._reply(self._models)

        def do_POST(self) -> None:
            self._reply(self._completions)

        def _models(self) -> Mapping[str, Any]:
            gateway.session_of(self.headers.get("Authorization", ""))
            if self.path.rstrip("/") != "/v1/models":
                raise Refused(404, f"{self.path}: unknown path", "not_found")
            return {"object": "list", "data": [{"id": MODEL, "object": "model", "created": 0, "owned_by": "local"}]}

        def _completions(self) -> Mapping[str, Any] | None:
            length = self.headers.get("Content-Length", "")
            if not length.isdigit() or int(length) > LARGEST:
                self.close_connection = True
                raise Refused(400, f"a request has a Content-Length of at most {LARGEST} bytes")
            content = self.rfile.read(int(length))
            session = gateway.session_of(self.headers.get("Authorization", ""))
            if self.path not in _PATHS:
                raise Refused(404, f"{self.path}: unknown path", "not_found")
            try:
                body = json.loads(content)
                if b"\\u" in content:  # no tokenizer reads half of a pair of surrogates
                    json.dumps(body, ensure_ascii=False).encode()
            except (ValueError, RecursionError):
                raise Refused(400, "the request is not JSON in UTF-8") from None
            if not isinstance(body, dict):
                raise Refused(400, "the request is not a JSON object")
            answer = gateway.ask(PendingRequest(session, self.path == _PATHS[0], body, content))
            if not body.get("stream"):
                return answer.body()
            options = body.get("stream_options")
            self._stream(answer, usage=isinstance(options, dict) and bool(options.get("include_usage")))
            return None

        def _stream(self, answer: ProgramAnswer, *, usage: bool) -> None:
            chunked = self.request_version != "HTTP/1.0"
            try:
                self.send_response(200)
                self.send_header("Content-Type", "text/event-stream")
                self.send_header("Cache-Control", "no-cache")
                self.send_header(*(("Transfer-Encoding", "chunked") if chunked else ("Connection", "close")))
                self.end_headers()
                for text in (*map(json.dumps, answer.events(usage=usage)), "[DONE]"):
                    event = f"data: {text}\n\n".encode()
                    self.wfile.write(b"%x\r\n%b\r\n" % (len(event), event) if chunked else event)
                if chunked:
                    self.wfile.write(b"0\r\n\r\n")
            except OSError:  # the client is gone
                self.close_connection = True

        def _reply(self, respond: Callable[[], Mapping[str, Any] | None]) -> None:
            try:
                status, body = 200, respond()
            except Refused as error:
                details = {"message": str(error), "type": "invalid_request_error", "code": error.code or None}
                status, body = error.status, {"error": details}
            if body is None:  # it was sent as a stream
                return
            content = json.dumps(body).encode()
            try:
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)
            except OSError:  # the client is gone
                self.close_connection = True

    return Handler

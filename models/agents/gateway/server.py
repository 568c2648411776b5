"""An HTTP server on loopback that speaks OpenAI's protocol; requests wait for the owner of the engine.

    POST /v1/chat/completions    messages -> choices
    POST /v1/completions         prompt, as text or as token ids -> choices
    GET  /v1/models              the policy

The key of a request is `TOKEN.SESSION`: a random token of this server, and the episode that the call belongs to.
Nothing is logged here, least of all a key. A waiting request is answered, or refused when the server closes.
"""

from __future__ import annotations

import hmac
import json
import secrets
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from queue import SimpleQueue
from types import TracebackType
from typing import Any, Self

HOST = "127.0.0.1"
MODEL = "policy"
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
    _given: SimpleQueue[Mapping[str, Any] | Refused] = field(default_factory=SimpleQueue)

    def answer(self, reply: Mapping[str, Any] | Refused) -> None:
        """Answer the request, once."""
        self._given.put(reply)

    def wait(self) -> Mapping[str, Any]:
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
        self._server = ThreadingHTTPServer((HOST, 0), _handler_of(self))
        self._server.daemon_threads = True
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

    def ask(self, request: PendingRequest) -> Mapping[str, Any]:
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


def completion(chat: bool, texts: list[tuple[str, bool]], prompt_tokens: int, drawn_tokens: int) -> dict[str, Any]:
    """Build an answer in the form of OpenAI's protocol.

    Args:
        chat: whether it answers a conversation, else a plain completion.
        texts: text of each choice, and whether it ended by itself.
        prompt_tokens: ids of the prompt.
        drawn_tokens: ids of all choices.
    """
    choices = [
        {
            "index": number,
            **({"message": {"role": "assistant", "content": text}} if chat else {"text": text}),
            "finish_reason": "stop" if finished else "length",
            "logprobs": None,
        }
        for number, (text, finished) in enumerate(texts)
    ]
    usage = {"prompt_tokens": prompt_tokens, "completion_tokens": drawn_tokens}
    return {
        "id": f"call-{secrets.token_hex(8)}",
        "object": "chat.completion" if chat else "text_completion",
        "created": int(time.time()),
        "model": MODEL,
        "choices": choices,
        "usage": {**usage, "total_tokens": prompt_tokens + drawn_tokens},
    }


def streamed(answer: Mapping[str, Any], usage: bool) -> bytes:
    """Encode an answer of `completion` as server-sent events, for clients that request a stream.

    Each choice is sent in one piece.

    Args:
        answer: the answer without a stream.
        usage: whether the last event reports the number of tokens.
    """
    chat = answer["object"] == "chat.completion"
    head = {**answer, "object": "chat.completion.chunk" if chat else "text_completion"}
    del head["usage"]
    pieces = [
        {"delta" if chat and key == "message" else key: value for key, value in choice.items()}
        for choice in answer["choices"]
    ]
    events = [{**head, "choices": pieces}]
    if usage:
        events.append({**head, "choices": [], "usage": answer["usage"]})
    return b"".join(f"data: {text}\n\n".encode() for text in (*map(json.dumps, events), "[DONE]"))


def _handler_of(gateway: Gateway) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

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

        def _completions(self) -> Mapping[str, Any] | bytes:
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
            except (ValueError, RecursionError):
                raise Refused(400, "the request is not JSON") from None
            if not isinstance(body, dict):
                raise Refused(400, "the request is not a JSON object")
            answer = gateway.ask(PendingRequest(session, self.path == _PATHS[0], body))
            options = body.get("stream_options")
            usage = isinstance(options, dict) and bool(options.get("include_usage"))
            return streamed(answer, usage) if body.get("stream") else answer

        def _reply(self, respond: Any) -> None:
            try:
                status, body = 200, respond()
            except Refused as error:
                details = {"message": str(error), "type": "invalid_request_error", "code": error.code or None}
                status, body = error.status, {"error": details}
            events = isinstance(body, bytes)
            content = body if events else json.dumps(body).encode()
            try:
                self.send_response(status)
                self.send_header("Content-Type", "text/event-stream" if events else "application/json")
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)
            except OSError:  # the client is gone
                self.close_connection = True

    return Handler

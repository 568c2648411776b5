"""What people decide on MLflow's page, carried out: at once where MLflow's webhook says that a tag was set, and once a
minute whether or not it does, as a delivery may be lost.

A webhook says no more than "look now". Nothing that comes with it is read: what stands in the registry is what counts,
so whoever reaches this address can make it look, and nothing else. Several at once are one look.
"""

from __future__ import annotations

import logging
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from flows.runtime.telling import MINUTE
from flows.servers.server_record import HOST
from flows.servers.servers import servers_end_with_us
from models.errors import UserError
from tasks.gate import approval_by_tag
from tasks.tracking import store, webhooks

_LOG = logging.getLogger(__name__)

PORT = 4205
PATH = "/look"
"""The one address that is answered."""
MOST = 2**20
"""Bytes of a delivery that are taken in before the connection is cut."""


@contextmanager
def looking(every: float = MINUTE, say: Callable[[str], None] = _LOG.info) -> Iterator[Callable[[], None]]:
    """Look at what people wrote, now and again and again, in a thread. Gives what makes it look at once.

    Args:
        every: seconds between two looks.
        say: takes what was done, a sentence each.
    """
    now, over = threading.Event(), threading.Event()

    def work() -> None:
        while not over.is_set():
            now.clear()
            try:
                for sentence in approval_by_tag.answer():
                    say(sentence)
            except Exception as error:  # whatever it is, the next look may pass
                _LOG.warning("words on MLflow's pages wait: %s", error)
            now.wait(every)

    def look() -> None:
        now.set()

    thread = threading.Thread(target=work, name="approvals", daemon=True)
    thread.start()
    try:
        yield look
    finally:
        over.set()
        now.set()
        thread.join(timeout=20)


@contextmanager
def listening(look: Callable[[], None], port: int = PORT, host: str = HOST) -> Iterator[str]:
    """Take MLflow's deliveries. Gives the address.

    Raises:
        UserError: the port is taken.
    """

    class Deliveries(BaseHTTPRequestHandler):
        timeout = 20

        def do_POST(self) -> None:
            length = self.headers.get("Content-Length", "0")
            if self.path != PATH or not length.isdecimal() or int(length) > MOST:
                self.close_connection = True
                self.send_error(404 if self.path != PATH else 413)
                return
            self.rfile.read(int(length))  # all of it, or the sender takes it for a failure
            look()
            self.send_response(204)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Say nothing of each."""

    try:
        server = ThreadingHTTPServer((host, port), Deliveries)
    except OSError as error:
        raise UserError(f"{host}:{port}: {error.strerror}; --port takes another") from None
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, name="deliveries", daemon=True)
    thread.start()
    try:
        yield f"http://{host}:{server.server_address[1]}{PATH}"
    finally:
        server.shutdown()
        server.server_close()


def serve_approvals(port: int, host: str, address: str) -> None:
    """Carry out what people decide on MLflow's page until Ctrl-C or SIGTERM.

    Args:
        address: that MLflow's server reaches this process by; "": where it listens.

    Raises:
        UserError: the port is taken.
    """
    with (
        servers_end_with_us(),
        looking(say=lambda line: print(line, flush=True)) as look,
        listening(look, port, host) as own,
        webhooks.delivered(address or own) as refused,
    ):
        how = f"not by MLflow's webhook: {refused}" if refused else f"MLflow's webhook sends to {address or own}"
        print(f"tags `approve` and `reject` at {store.current().shown} are looked at once a minute; {how}")
        print("Ctrl-C ends it.", flush=True)
        signal.pause()

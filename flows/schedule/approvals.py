"""Service that carries out the approvals and rejections that people set as tags on MLflow's pages.

It checks the registry when MLflow's webhook reports a tag, and also once a minute, because a delivery may be lost. A
delivery only triggers a check: its content is not read, and only the state of the registry counts. So a sender who
reaches this address can trigger a check, and nothing else. Several deliveries at once cause one check.
"""

from __future__ import annotations

import logging
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from flows.runtime.notifications import MINUTE
from flows.servers.server_record import HOST
from flows.servers.servers import servers_end_with_us
from models.base.errors import UserError
from tasks.gate import approval_by_tag
from tasks.tracking import store, webhooks

_LOG = logging.getLogger(__name__)

PORT = 4205
PATH = "/look"
"""URL path for MLflow's webhook; requests to any other path get 404."""
MOST = 2**20
"""Maximum size of a webhook delivery, bytes; a larger one is refused and the connection closed."""


@contextmanager
def check_registry(every: float = MINUTE, report: Callable[[str], None] = _LOG.info) -> Iterator[Callable[[], None]]:
    """Check the registry for decisions repeatedly in a thread. Yields a function that triggers a check at once.

    Args:
        every: seconds between two checks.
        report: receives one sentence for each action.
    """
    now, over = threading.Event(), threading.Event()

    def apply_repeatedly() -> None:
        while not over.is_set():
            now.clear()
            try:
                for sentence in approval_by_tag.apply_decisions():
                    report(sentence)
            except Exception as error:  # the next check may succeed
                _LOG.warning("words on MLflow's pages wait: %s", error)
            now.wait(every)

    def look() -> None:
        now.set()

    thread = threading.Thread(target=apply_repeatedly, name="approvals", daemon=True)
    thread.start()
    try:
        yield look
    finally:
        over.set()
        now.set()
        thread.join(timeout=20)


@contextmanager
def receive_deliveries(look: Callable[[], None], port: int = PORT, host: str = HOST) -> Iterator[str]:
    """Receive deliveries of MLflow's webhook and call `look` for each. Yields the address.

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
            self.rfile.read(int(length))  # read all of it, or the sender reports a failure
            look()
            self.send_response(204)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Log nothing for a delivery."""

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
    """Carry out people's decisions on MLflow's pages until Ctrl-C or SIGTERM.

    Args:
        address: address at which MLflow's server reaches this process; "": the one on which it listens.

    Raises:
        UserError: the port is taken.
    """
    with (
        servers_end_with_us(),
        check_registry(report=lambda line: print(line, flush=True)) as look,
        receive_deliveries(look, port, host) as own_address,
        webhooks.open_webhook(address or own_address) as reason,
    ):
        delivery = (
            f"not by MLflow's webhook: {reason}" if reason else f"MLflow's webhook sends to {address or own_address}"
        )
        print(f"tags `approve` and `reject` at {store.current().shown} are looked at once a minute; {delivery}")
        print("Ctrl-C ends it.", flush=True)
        signal.pause()

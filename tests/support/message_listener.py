"""A real HTTP server on loopback that receives messages."""

import json
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from tasks.messages.receivers import Receiver

TOKEN = "s3cr3t-t0ken"
"""A part of the receiver's address that must not appear in any output."""


class Listener:
    """A receiver whose status and delay a test sets. It records the messages."""

    def __init__(self) -> None:
        self.heard: list[dict[str, str]] = []
        self.status, self.delay = 200, 0.0
        listener = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                content = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                time.sleep(listener.delay)
                listener.heard.append(content)
                self.send_response(listener.status)
                if listener.status == 302:
                    self.send_header("Location", "http://127.0.0.1:9/elsewhere")
                self.end_headers()

            def log_message(self, *_: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.receiver = Receiver(f"http://127.0.0.1:{self.server.server_port}/hook/{TOKEN}")
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    @property
    def ids(self) -> list[str]:
        return [event["event_id"] for event in self.heard]

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()

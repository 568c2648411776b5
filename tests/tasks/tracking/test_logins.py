"""A tracking server with logins: a login or a permission that is refused is one line, at once."""

import http.server
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from models.base.errors import UserError
from tasks.tracking import runs, store


class Refusing(http.server.BaseHTTPRequestHandler):
    """A handler that answers every request as MLflow's basic-auth application does without the permission."""

    status = 401

    def do_GET(self) -> None:
        self.send_response(self.status)
        self.end_headers()
        self.wfile.write(b"Permission denied")

    do_POST = do_GET

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture(params=[401, 403])
def refusing(request: pytest.FixtureRequest) -> Iterator[tuple[int, str]]:
    """Start a server that refuses every request, and return its status and its address."""
    handler = type("Handler", (Refusing,), {"status": request.param})
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield request.param, f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def test_a_refusal_is_one_line_and_is_not_waited_for(
    refusing: tuple[int, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    status, address = refusing
    monkeypatch.setenv("MLFLOW_TRACKING_URI", address)
    monkeypatch.setenv("MLFLOW_TRACKING_USERNAME", "ann")
    monkeypatch.setenv("MLFLOW_TRACKING_PASSWORD", "secret-4711")
    store.configure(tmp_path)
    began = time.monotonic()
    with pytest.raises(UserError) as error:
        runs.open_flow_run("e", "n")
    assert {401: "set MLFLOW_TRACKING_USERNAME", 403: "does not let ann do this"}[status] in str(error.value)
    assert address in str(error.value) and "4711" not in str(error.value)
    assert time.monotonic() - began < store.PATIENCE / 4

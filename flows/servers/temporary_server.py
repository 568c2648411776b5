"""The temporary Prefect server of one command, used if no other Prefect server is chosen or runs.

It has its own session: otherwise a Ctrl-C at the terminal, which reaches every process of the command, would end it
before the flow has sent its final state. It listens on a socket that is bound before it starts, ends with the
command, and watches for the command's death, so that a killed command leaves no server running. If the server dies
before its command, it is started again on the same socket, where clients wait until then: a training does not end
because its Prefect server did.
"""

from __future__ import annotations

import atexit
import contextlib
import logging
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import psutil

from flows.runtime import collection
from flows.runtime.environment import STARTER
from flows.servers.orphan_watch import end_with
from flows.servers.server_process import wait_until_healthy
from flows.servers.server_record import HOST, Server
from models.base.errors import UserError
from tasks.host.plain_address import required

END_SECONDS = 5.0
"""Time that the server has to end before it is killed, seconds."""
RESTARTS = 5
"""Maximum number of times that a server that dies during a run is started again."""

_LOG = logging.getLogger("rewardflow")
_server: Server | None = None


def start(home: Path) -> Callable[[], None]:
    """Start the server and set PREFECT_API_URL, unless another is chosen or runs. Call it before importing Prefect.

    It ends with this process. Returns a function that waits until it answers: it starts while the caller imports.

    Raises:
        UserError: the chosen address contains a password.
    """
    global _server
    required("PREFECT_API_URL", os.environ.get("PREFECT_API_URL", ""))
    if "PREFECT_API_URL" in os.environ or _chosen_by_profile():
        return lambda: None
    (home / "logs").mkdir(parents=True, exist_ok=True)
    log = home / "logs" / "prefect-temporary.log"
    log.unlink(missing_ok=True)
    process = _ServerProcess(log)
    child, address = process.child, f"http://{HOST}:{process.listener.getsockname()[1]}"
    # Registered before Prefect is imported, so that it runs after Prefect has sent its last data at exit.
    atexit.register(process.end)
    server = Server("prefect", address, child.pid, psutil.Process(child.pid).create_time(), str(log))
    os.environ["PREFECT_API_URL"] = f"{address}/api"
    _server = server

    def wait_for_answer() -> None:
        wait_until_healthy(server)
        threading.Thread(target=process.keep, daemon=True).start()

    return wait_for_answer


def is_temporary() -> bool:
    """Return whether the Prefect server is a temporary one, which only this process uses."""
    from prefect.settings import PREFECT_API_URL

    address = PREFECT_API_URL.value()
    return not address or (_server is not None and address == f"{_server.address}/api")


class _ServerProcess:
    """The server's process, and the socket that outlives it."""

    def __init__(self, log: Path) -> None:
        self.log = log
        self.listener = socket.socket()
        self.listener.bind((HOST, 0))
        self.listener.listen(128)
        self.environment = {
            "PREFECT_SERVER_LOGGING_LEVEL": "WARNING",
            **os.environ,
            "PREFECT_UI_ENABLED": "0",
            "PREFECT__SERVER_EPHEMERAL": "1",
            "PREFECT__SERVER_FINAL": "1",
            STARTER: str(os.getpid()),
        }
        self._ending = threading.Lock()
        self.child = self._launch()

    def keep(self) -> None:
        """Start the server again whenever it dies, at most `RESTARTS` times; returns when it is to end."""
        for _ in range(RESTARTS):
            status = self.child.wait()
            with self._ending:
                if self.listener.fileno() < 0:
                    return
                _LOG.warning("the Prefect server of this run ended (status %d); it is started again", status)
                self.child = self._launch()

    def end(self) -> None:
        """End the server, and do not start it again."""
        with self._ending:
            self.listener.close()
            self.child.terminate()
        try:
            self.child.wait(END_SECONDS)
        except subprocess.TimeoutExpired:
            self.child.kill()
            self.child.wait()

    def _launch(self) -> subprocess.Popen[bytes]:
        with self.log.open("a") as output:
            return subprocess.Popen(
                [sys.executable, "-m", "flows.servers.temporary_server", str(self.listener.fileno()), str(os.getpid())],
                env=self.environment,
                pass_fds=(self.listener.fileno(),),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )


def _chosen_by_profile() -> bool:
    """Whether a Prefect profile names a server."""
    profiles = os.environ.get("PREFECT_PROFILES_PATH") or Path(os.environ.get("PREFECT_HOME", "")) / "profiles.toml"
    with contextlib.suppress(OSError):
        return "PREFECT_API_URL" in Path(profiles).read_text(errors="replace")
    return False


def _serve(handle: int, starter: int) -> None:
    """Serve Prefect's API on the listening socket `handle` until SIGTERM or the death of the process `starter`."""
    collection.postpone()
    end_with(starter, END_SECONDS)
    import uvicorn
    from prefect.server.api import server  # noqa: F401 - the application's module, imported before collecting begins

    collection.begin()
    config = uvicorn.Config(
        "prefect.server.api.server:create_app",
        factory=True,
        log_level="error",
        lifespan="on",
        timeout_graceful_shutdown=2,
    )
    uvicorn.Server(config).run(sockets=[socket.socket(fileno=handle)])


if __name__ == "__main__":
    if len(sys.argv) != 3:
        raise UserError("started by flows.command_line only")
    _serve(int(sys.argv[1]), int(sys.argv[2]))

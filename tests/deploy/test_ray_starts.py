"""Test of a Ray head with the manifest's settings, and of a flow that joins it as in the head pod."""

import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

import pytest
from manifests import ROOT, named, read_objects
from ray_cluster import start_command

RAY = [sys.executable, "-m", "ray.scripts.scripts"]
JOINING = """
import sys
from models.base.placement import PlacementSettings
from tasks.compute.cluster import connected
with connected(sys.argv[1]) as cluster:
    print(cluster.gpus, cluster.of_each_learner(PlacementSettings(learners=2)))
    import ray
    print(ray.cluster_resources().get("CPU", 0.0))
"""


def free_ports(count: int) -> list[int]:
    """Return free ports below 10002: Ray gives the ports from there on to its workers."""
    with ExitStack() as held:
        ports = []
        for port in range(9990, 9000, -1):
            probe = held.enter_context(socket.socket())
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            ports.append(port)
            if len(ports) == count:
                return ports
    raise RuntimeError("no free ports")


@pytest.mark.thorough
def test_a_flow_joins_with_the_token_alone_and_asks_for_the_gpus_that_are_to_come(tmp_path: Path) -> None:
    spec = named(read_objects(), "RayCluster")["rewardflow"]["spec"]
    gcs, raylet, metrics, agent = free_ports(4)
    here = {
        "port": str(gcs),
        "node-manager-port": str(raylet),
        "metrics-export-port": str(metrics),
        "dashboard-agent-listen-port": str(agent),
        "object-store-memory": "100000000",
    }
    files = tempfile.mkdtemp(prefix="ray-", dir="/tmp")  # it contains sockets, whose paths must be short
    words = start_command(spec["headGroupSpec"]["rayStartParams"] | here, head=True)
    known = {**os.environ, "RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": "a" * 64, "RAY_USAGE_STATS_ENABLED": "0"}
    with (tmp_path / "head.log").open("w") as log:
        head = subprocess.Popen([*RAY, "start", *words, f"--temp-dir={files}"], env=known, stdout=log, stderr=log)
    try:
        for port in (gcs, raylet):  # the ports of the probes
            wait_for(port, head, tmp_path / "head.log")
        joined = join(gcs, known)
        assert joined.stdout.splitlines() == ["0.0 {'num_gpus': 1.0, 'num_cpus': 0.0}", "0.0"], joined.stderr
        stranger = join(gcs, {**known, "RAY_AUTH_TOKEN": "b" * 64})
        assert stranger.returncode != 0 and "0.0" not in stranger.stdout
    finally:
        head.terminate()
        head.wait(60)
        shutil.rmtree(files, ignore_errors=True)


def join(port: int, environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    """Run a process that joins the Ray cluster on this machine."""
    command = [sys.executable, "-c", JOINING, f"127.0.0.1:{port}"]
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=240)


def wait_for(port: int, process: subprocess.Popen[bytes], log: Path) -> None:
    """Wait until the port accepts connections."""
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        assert process.poll() is None, log.read_text()
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
        except OSError:
            time.sleep(0.2)
        else:
            return
    raise AssertionError(log.read_text())

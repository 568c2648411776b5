"""Test of a real vLLM process that is killed while it generates. See test_faults.py."""

import time
from dataclasses import replace

import psutil
import pytest
from fault_scene import Scene, line_in, made_in, timed
from running import wait_for

from tests.support.tiny_models import NO_VLLM

pytestmark = [pytest.mark.thorough, pytest.mark.slow, pytest.mark.faults]

PLACED = ["--set", "engine.name=vllm", "--set", "placement.engines=1", "--set", "rollouts.max_tokens=48"]
"""vLLM in a separate process, with completions long enough to be interrupted."""


@NO_VLLM
def test_a_vllm_process_killed_while_it_generates_is_started_anew_and_its_step_made_again(scene: Scene) -> None:
    home, began = scene.home(), time.monotonic()
    scene.finish(home, *PLACED)
    undisturbed = replace(scene, made=made_in(home), seconds=timed(began))

    home, began = scene.home(), time.monotonic()
    with scene.running(home, *PLACED) as disturbed:
        wait_for("a round", lambda: list(home.glob("store/fine_tune/*/checkpoints/round_000002")), disturbed)
        process = wait_for("a generation", lambda: _generating(disturbed.pid), disturbed)
        process.kill()
        assert disturbed.wait(timeout=240) == 0, scene.log(home).read_text()
    line = line_in(scene.log(home).read_text(), "it broke in generate")
    undisturbed.same_as_undisturbed("SIGKILL of vLLM while it generates", home, line, timed(began))


def _generating(pid: int) -> psutil.Process | None:
    """Return the process of an engine that is generating now. Ray puts the current call into the title of a process."""
    for process in psutil.Process(pid).children(recursive=True):
        try:
            if any(part.startswith("ray::") and part.endswith(".complete") for part in process.cmdline()):
                return process
        except psutil.Error:  # it has just ended
            continue
    return None

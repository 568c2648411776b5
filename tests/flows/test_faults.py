"""Tests of real faults injected into a run: one clear line, nothing lost or half-written, and the same weights.

This file has the faults of processes, rewards and data; test_faults_of_files.py, test_faults_of_engines.py and
test_service_faults.py have the others. `make faults` runs all of them and writes docs/faults.md.
"""

import re
import shutil
import time
from pathlib import Path

import psutil
import pytest
from fault_scene import Scene, kill_at, line_in, made_in, seen, timed
from running import wait_for

pytestmark = [pytest.mark.thorough, pytest.mark.slow, pytest.mark.faults]

MOMENTS = {
    "while the data are validated": "store/validate/*",
    "in the warm start": "store/warm_start/*",
    "while the reward model is fitted": "store/reward_model/*",
    "in the first round": "store/fine_tune/*/checkpoints",
    "after round 2": "store/fine_tune/*/checkpoints/round_000002",
    "after round 5": "store/fine_tune/*/checkpoints/round_000005",
    "after the last round": "store/fine_tune/*/policy",
    "in the evaluation": "store/evaluate/*",
    "in the promotion": "store/promote/*",
}
"""Moments at which the flow is killed: as soon as a path that matches the pattern is in the state folder."""


@pytest.mark.parametrize("moment", MOMENTS)
def test_a_killed_flow_goes_on_and_ends_at_the_same_weights(scene: Scene, moment: str) -> None:
    home, began = scene.home(), time.monotonic()
    with scene.running(home, REWARD_PAUSE="0.3") as doomed:
        kill_at(doomed, seen(home, MOMENTS[moment]), moment)
    said = scene.finish(home)
    line = line_in(said, "going on from the checkpoint") if "after round" in moment else ""
    scene.same_as_undisturbed(f"SIGKILL of the flow {moment}", home, line, timed(began))


def test_a_prefect_server_that_is_killed_is_started_again_and_the_run_goes_on(scene: Scene) -> None:
    home, began = scene.home(), time.monotonic()
    with scene.running(home, REWARD_PAUSE="0.5", PREFECT_API_URL="") as disturbed:
        wait_for("a round", seen(home, "store/fine_tune/*/checkpoints/round_000002"), disturbed)
        (server,) = [
            process
            for process in psutil.Process(disturbed.pid).children(recursive=True)
            if "flows.servers.temporary_server" in process.cmdline()
        ]
        server.kill()
        assert disturbed.wait(timeout=240) == 0, scene.log(home).read_text()
    line = line_in(scene.log(home).read_text(), "it is started again")
    scene.same_as_undisturbed("SIGKILL of the Prefect server in round 3", home, line, timed(began))


# ---------------------------------------- rewards


@pytest.mark.parametrize("fault", ["throws", "nan"])
def test_a_reward_that_fails_once_is_asked_again_and_leaves_no_trace(scene: Scene, fault: str) -> None:
    home, began = scene.home(), time.monotonic()
    scene.finish(home, REWARD_FAULT=fault)
    name = {"throws": "a reward that throws", "nan": "a reward of NaN"}[fault]
    scene.same_as_undisturbed(f"{name}, once", home, "", timed(began))


def test_a_reward_that_hangs_ends_with_the_steps_time_and_the_next_run_goes_on(scene: Scene) -> None:
    home, began = scene.home(), time.monotonic()
    with scene.running(home, "--set", "timeouts.fine_tune=20", REWARD_FAULT="hangs") as stopped:
        assert stopped.wait(timeout=240) == 1, scene.log(home).read_text()
    line = line_in(scene.log(home).read_text(), "^error: ")
    assert "took longer than the 20 s that timeouts.fine_tune allows" in line
    assert "going on from the checkpoint" in scene.finish(home)
    scene.same_as_undisturbed("a reward that hangs", home, line, timed(began))


def test_a_nan_in_the_weights_stops_the_run_and_the_next_goes_on_from_before(scene: Scene) -> None:
    home, began = scene.home(), time.monotonic()
    with scene.running(home, REWARD_FAULT="poisons") as stopped:
        assert stopped.wait(timeout=240) == 1, scene.log(home).read_text()
    line = line_in(scene.log(home).read_text(), "^error: ")
    assert "going on from the checkpoint" in scene.finish(home)
    scene.same_as_undisturbed("a NaN in the weights, so in the loss", home, line, timed(began))


def test_a_run_without_memory_is_one_line_and_the_next_goes_on(scene: Scene) -> None:
    home, began = scene.home(), time.monotonic()
    with scene.running(home, REWARD_FAULT="starves") as stopped:
        assert stopped.wait(timeout=240) == 1, scene.log(home).read_text()
    line = line_in(scene.log(home).read_text(), "^error: ")
    assert "memory" in line
    assert "going on from the checkpoint" in scene.finish(home)
    scene.same_as_undisturbed("no memory left", home, line, timed(began))


# ---------------------------------------- other data


def test_data_that_changed_between_kill_and_resume_begin_anew(scene: Scene, tmp_path: Path) -> None:
    home, began = scene.home(), time.monotonic()
    with scene.running(home, REWARD_PAUSE="0.3") as doomed:
        kill_at(doomed, seen(home, "store/fine_tune/*/checkpoints/round_000003"), "a round")
    (killed,) = home.glob("store/fine_tune/*")
    params = scene.clone / "params.yaml"
    text = params.read_text()
    try:
        params.write_text(text.replace("\n  seed: 1", "\n  seed: 2", 1))
        assert params.read_text() != text
        with scene.running(home, "--resume") as refused:
            assert refused.wait(timeout=240) == 1
        assert re.search("^error: --resume: the training .* the data were ", scene.log(home).read_text(), re.MULTILINE)
        said = scene.finish(home)
    finally:
        params.write_text(text)
    assert "going on from the checkpoint" not in said
    line = line_in(said, "starts again: the training that was cut off after round . has changed since: the data were ")
    assert list((killed / "checkpoints").glob("round_*")), "they wait for the data that they are of"
    assert scene.finish(home).count("going on from the checkpoint after round") == 1
    for result in home.glob("store/fine_tune/*/result.json"):  # results of the other data
        if result.parent != killed:
            shutil.rmtree(result.parent)
    made = made_in(home)  # the registry also has the model of the other data
    assert scene.made is not None and (made.weights, made.rewards) == (scene.made.weights, scene.made.rewards)
    scene.row("the data changed between kill and resume, and back", line, f"{timed(began) - scene.seconds:.0f}")

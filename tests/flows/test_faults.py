"""Faults in a run, injected for real: nothing is lost, nothing half-written, one clear line, and the same weights.

`make faults` runs these with those of test_service_faults.py and writes docs/faults.md.
"""

import contextlib
import json
import os
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest
from fault_scene import ROUNDS, Scene, kill_at, line_in, made_in, timed
from running import wait_for

pytestmark = [pytest.mark.thorough, pytest.mark.slow, pytest.mark.faults]

MOMENTS = {
    "while the data are validated": "store/validate/*",
    "in the warm start": "store/warm_start/*",
    "while the reward model is fitted": "store/reward_model/*",
    "in the first round": "store/fine_tune/*/checkpoints",
    "after round 2": "store/fine_tune/*/checkpoints/round_000002",
    "after round 5": "store/fine_tune/*/checkpoints/round_000005",
    "after the last round": f"store/fine_tune/*/checkpoints/round_{ROUNDS:06d}",
    "in the evaluation": "store/evaluate/*",
    "in the promotion": "store/promote/*",
}
"""When the flow is killed: once something of this name is in the state folder."""


def seen(home: Path, pattern: str) -> Callable[[], object]:
    return lambda: list(home.glob(pattern))


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
            if "flows.temporary_server" in process.cmdline()
        ]
        server.kill()
        assert disturbed.wait(timeout=240) == 0, scene.log(home).read_text()
    line = line_in(scene.log(home).read_text(), "it is started again")
    scene.same_as_undisturbed("SIGKILL of the Prefect server in round 3", home, line, timed(began))


# ---------------------------------------- full disks


@pytest.fixture
def small_disk(scene: Scene) -> Iterator[Path]:
    """A state folder on a file system of its own."""
    home = scene.home()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=256m", "tmpfs", home], capture_output=True)
    if mounted.returncode:
        pytest.skip(f"no file system can be mounted here: {mounted.stderr.decode().strip()}")
    yield home
    subprocess.run(["umount", "-l", home], check=True)


def fill(folder: Path) -> Path:
    """Leave no byte free; returns the file that takes them."""
    filler = folder / "filler"
    with filler.open("wb", buffering=0) as file:
        for size in (2**20, 2**12, 1):
            with contextlib.suppress(OSError):
                while file.write(b"0" * size):
                    pass
    return filler


@pytest.mark.parametrize(
    ("what", "pattern"),
    [
        ("a cache", "store/tokens/*"),
        ("a result", "store/reward_model/*"),
        ("a checkpoint", "store/fine_tune/*/checkpoints/round_000002"),
        ("the tracking", "store/evaluate/*"),
    ],
)
def test_a_disk_that_fills_up_is_one_line_and_the_next_run_goes_on(
    scene: Scene, small_disk: Path, what: str, pattern: str
) -> None:
    began = time.monotonic()
    with scene.running(small_disk, REWARD_PAUSE="0.3") as stopped:
        wait_for(what, seen(small_disk, pattern), stopped)
        filler = fill(small_disk)
        assert stopped.wait(timeout=240) == 1, scene.log(small_disk).read_text()
    line = line_in(scene.log(small_disk).read_text(), "^error: ")
    assert "no space left" in line
    filler.unlink()
    scene.finish(small_disk)
    scene.same_as_undisturbed(f"the disk full while {what} is written", small_disk, line, timed(began))


# ---------------------------------------- damage


def flip(file: Path) -> None:
    """Change a bit in the middle of a file."""
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)


def cut(file: Path) -> None:
    """Leave the first half of a file."""
    os.truncate(file, file.stat().st_size // 2)


@pytest.mark.parametrize("damage", [flip, cut], ids=["a byte flipped", "cut to half"])
def test_a_damaged_checkpoint_falls_back_to_the_one_before(scene: Scene, damage: Callable[[Path], None]) -> None:
    home, began = scene.home(), time.monotonic()
    with scene.running(home, REWARD_PAUSE="0.3") as doomed:
        kill_at(doomed, seen(home, "store/fine_tune/*/checkpoints/round_000004"), "a checkpoint")
    newest = max(home.glob("store/fine_tune/*/checkpoints/round_*"))
    damage(newest / "policy.safetensors")
    said = scene.finish(home)
    line = line_in(said, newest.name)
    assert f"going on from the checkpoint after round {int(newest.name.removeprefix('round_')) - 1}" in said
    name = "a byte flipped in" if damage is flip else "half cut off"
    scene.same_as_undisturbed(f"{name} a checkpoint", home, line, timed(began))


@pytest.mark.parametrize("step", ["warm_start", "reward_model", "fine_tune"])
def test_a_byte_flipped_in_a_result_makes_the_step_again(scene: Scene, step: str) -> None:
    home, began = scene.home(), time.monotonic()
    with scene.running(home, REWARD_PAUSE="0.1") as doomed:
        kill_at(doomed, seen(home, "store/evaluate/*"), "the evaluation")
    (weights,) = home.glob(f"store/{step}/*/*/model.safetensors")
    flip(weights)
    said = scene.finish(home)
    line = line_in(said, f"{step} runs again, its earlier result is not taken")
    scene.same_as_undisturbed(f"a byte flipped in the result of {step}", home, line, timed(began))


def test_a_byte_flipped_in_a_registered_model_is_noticed_where_it_is_used(scene: Scene) -> None:
    home = scene.home()
    scene.finish(home)
    before = made_in(home)
    (result,) = home.glob("store/fine_tune/*/result.json")
    model = json.loads(result.read_text())["links"]["model_id"]
    (weights,) = home.glob(f"mlartifacts/faulty/models/{model}/**/model.safetensors")
    flip(weights)
    target = scene.below / "exported"
    code, said = scene.command("export", "1", str(target), home=home)
    line = line_in(said, "^error: ")
    assert code == 1 and "are not what was registered" in line and not target.exists()
    flip(weights)
    assert made_in(home) == before
    scene.row("a byte flipped in a registered model", line, "0")


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


# ---------------------------------------- folders that take no writes


def test_a_state_folder_that_becomes_read_only_is_one_line_and_nothing_is_lost(scene: Scene, tmp_path: Path) -> None:
    kept, seen_as = scene.home(), scene.home()
    began = time.monotonic()
    bound = subprocess.run(["mount", "--bind", kept, seen_as], capture_output=True)
    if bound.returncode:
        pytest.skip(f"no file system can be mounted here: {bound.stderr.decode().strip()}")
    try:
        with scene.running(seen_as, REWARD_PAUSE="0.3") as stopped:
            wait_for("a round", seen(kept, "store/fine_tune/*/checkpoints/round_000002"), stopped)
            stopped.kill()
            stopped.wait()
        subprocess.run(["mount", "-o", "remount,bind,ro", seen_as], check=True)
        with scene.running(seen_as) as refused:
            assert refused.wait(timeout=120) == 1
        line = line_in(scene.log(seen_as).read_text(), "^error: ")
        subprocess.run(["mount", "-o", "remount,bind,rw", seen_as], check=True)
        scene.finish(seen_as)
        scene.same_as_undisturbed("a state folder that takes no writes", seen_as, line, timed(began))
    finally:
        subprocess.run(["umount", "-l", seen_as], check=True)


# ---------------------------------------- other data


def test_data_that_changed_between_kill_and_resume_begin_anew(scene: Scene, tmp_path: Path) -> None:
    home = scene.home()
    with scene.running(home, REWARD_PAUSE="0.3") as doomed:
        kill_at(doomed, seen(home, "store/fine_tune/*/checkpoints/round_000003"), "a round")
    (killed,) = home.glob("store/fine_tune/*")
    params = scene.clone / "params.yaml"
    text = params.read_text()
    try:
        params.write_text(text.replace("\n  seed: 1", "\n  seed: 2", 1))
        assert params.read_text() != text
        said = scene.finish(home)
    finally:
        params.write_text(text)
    assert "going on from the checkpoint" not in said
    assert list((killed / "checkpoints").glob("round_*")), "they wait for the data that they are of"
    assert scene.finish(home).count("going on from the checkpoint after round") == 1
    shutil.rmtree(killed)

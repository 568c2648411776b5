"""Tests of real faults of disks and files during a run. See test_faults.py."""

import contextlib
import json
import os
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from fault_scene import Scene, kill_at, line_in, made_in, seen, timed
from running import wait_for

pytestmark = [pytest.mark.thorough, pytest.mark.slow, pytest.mark.faults]


# ---------------------------------------- full disks


@pytest.fixture
def small_disk(scene: Scene) -> Iterator[Path]:
    """Make a state folder on a small separate file system. Skip the test if none can be mounted."""
    home = scene.home()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=256m", "tmpfs", home], capture_output=True)
    if mounted.returncode:
        pytest.skip(f"no file system can be mounted here: {mounted.stderr.decode().strip()}")
    yield home
    subprocess.run(["umount", "-l", home], check=True)


def fill(folder: Path) -> Path:
    """Fill the disk to the last byte. Return the file that fills it."""
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
    """Cut a file to its first half."""
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

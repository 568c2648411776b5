"""Recipes with several seats: a run that is killed in the middle of a round and resumed ends with the same weights."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from models.recipes.load import load_recipe
from tests.support.agent_scenes import ROOT, make_scene


def in_a_process(recipe: str, start: Path, checkpoints: Path, calls: int) -> int:
    done = subprocess.run(
        [sys.executable, "-m", "tests.support.agent_scenes", recipe, str(start), str(checkpoints), str(calls)],
        cwd=ROOT,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        timeout=600,
        check=False,
    )
    assert done.returncode in (0, -signal.SIGKILL), done.stderr.decode()[-2000:]
    return done.returncode


@pytest.mark.thorough
@pytest.mark.parametrize(("recipe", "calls"), [("self_play_kuhn", 6), ("rlver", 8)], ids=["table", "partner"])
def test_a_recipe_of_several_seats_that_is_killed_in_mid_round_ends_with_the_same_weights(
    recipe: str, calls: int, tmp_path: Path
) -> None:
    """SIGKILL ends the process when a request continues an episode. The resumed run must match bit for bit."""
    settings = load_recipe(recipe)
    start = make_scene(settings.data.name, settings.policy.tokenizer, tmp_path / "start").start
    begun = load_file(start / "model.safetensors")
    assert in_a_process(recipe, start, tmp_path / "killed", calls) == -signal.SIGKILL
    assert not (tmp_path / "killed.safetensors").exists() and list((tmp_path / "killed").iterdir())
    assert in_a_process(recipe, start, tmp_path / "killed", 0) == 0
    assert in_a_process(recipe, start, tmp_path / "whole", 0) == 0
    whole, resumed = (load_file(tmp_path / f"{name}.safetensors") for name in ("whole", "killed"))
    assert whole.keys() == resumed.keys() and all(torch.equal(whole[name], resumed[name]) for name in whole)
    assert any(not torch.equal(whole[name], value) for name, value in begun.items() if name in whole), "nothing learned"
    lines = [(tmp_path / f"{name}.txt").read_text().splitlines() for name in ("whole", "killed")]
    assert len(lines[0]) == 4 and lines[1] == lines[0][-len(lines[1]) :] and 0 < len(lines[1]) < 4
    assert all(float(line.split()[1]) > 1 for line in lines[0]), "seats took no second turns"

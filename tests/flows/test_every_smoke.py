"""Every recipe's smoke through the command line, from its data to its verdict, on one Prefect server for all."""

import shutil
import subprocess
from pathlib import Path

import pytest
from project import Project, command, environment
from running import ROOT

from models.recipe.load import load_recipe

DATA = {
    "gsm8k": {"data.path": "gsm8k_train.jsonl", "data.test_path": "gsm8k_test.jsonl"},
    "hh": {"data.path": "hh_harmless_pairs.jsonl"},
}
"""Recipes that read a user's files."""
NO_POLICY = ("hh",)
"""Recipes that end after their reward model."""
RECIPES = sorted(file.stem for file in (ROOT / "recipes").glob("*.yaml"))


@pytest.mark.slow
@pytest.mark.rotating(of=120)
@pytest.mark.parametrize("name", RECIPES)
def test_the_smoke_of_a_recipe_goes_through(
    name: str, project: Project, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    files = DATA.get(name, {})
    folder = request.getfixturevalue("shared_data") if files else tmp_path
    overrides = [part for key, file in files.items() for part in ("--set", f"{key}={folder / file}")]
    ended = subprocess.run(
        command("run", name, "--smoke", *overrides),
        cwd=project.folder,
        env=environment(**project.settings(tmp_path / "home")),
        capture_output=True,
        text=True,
    )
    shutil.rmtree(tmp_path / "home", ignore_errors=True)
    assert ended.returncode in (0, 3), ended.stdout + ended.stderr
    assert "Traceback" not in ended.stderr
    if name not in NO_POLICY:
        assert "\nverdict " in ended.stdout
    if ended.returncode == 3:
        assert "collapsed" in ended.stdout, "a smoke always changes the weights"


def test_the_recipes_that_read_files_are_those_without_built_in_data() -> None:
    for name in set(RECIPES) - set(DATA):
        assert load_recipe(name).data.built_in

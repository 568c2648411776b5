"""Tests of each recipe's smoke run by the command line, from data to verdict, in one process and state folder."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from project import Project, environment
from smokes import Smokes

from models.datasets.built_in import EXTRA_SETS
from models.recipes.find import method_files
from models.recipes.load import load_recipe
from tests.support.own_rows import reads_own_rows
from tests.support.simulator_here import skip_without_simulator

DATA = {
    "gsm8k": {"data.path": "gsm8k_train.jsonl", "data.test_path": "gsm8k_test.jsonl"},
    "hh": {"data.path": "hh_harmless_pairs.jsonl"},
    "humaneval": {"data.path": "humaneval.jsonl"},
}
"""Recipes that read files of a user, with the settings that name them."""
PACKAGES = {"drug_gen": "rdkit"}
"""Recipes that need a package that is not in the locks."""
RECIPES = sorted({file.stem for file in method_files()} - set(EXTRA_SETS))


@pytest.fixture(scope="module")
def smokes(project: Project, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Smokes]:
    """Make one process with one state folder for all smoke runs, so that shared results are made only once."""
    folder = tmp_path_factory.mktemp("smokes")
    running = Smokes(project.folder, environment(**project.settings(folder / "home")), folder)
    yield running
    running.close()
    shutil.rmtree(folder, ignore_errors=True)


@pytest.mark.slow
@pytest.mark.thorough
@pytest.mark.parametrize("name", RECIPES)
def test_the_smoke_of_a_recipe_goes_through(name: str, smokes: Smokes, request: pytest.FixtureRequest) -> None:
    skip_without_simulator(load_recipe(name))
    if name in PACKAGES:
        pytest.importorskip(PACKAGES[name])
    files = DATA.get(name, {})
    place = request.getfixturevalue("shared_data") if files else Path()
    ended = smokes.run(name, *(part for key, file in files.items() for part in ("--set", f"{key}={place / file}")))
    assert ended.status in (0, 3), ended.said
    assert "Traceback" not in ended.said
    if load_recipe(name).schedule is not None:  # a recipe without the loop has no verdict
        assert "\nverdict " in ended.said
    if ended.status == 3:
        assert "collapsed" in ended.said, "a smoke always changes the weights"


@pytest.mark.rotating(of=6)
def test_other_recipes_have_built_in_data_or_a_file_next_to_them() -> None:
    for name in set(RECIPES) - set(DATA):
        recipe = load_recipe(name)
        assert recipe.data.built_in or reads_own_rows(recipe), name

"""What a recipe may say of placement, and what is refused in one line before anything starts."""

import importlib.util

import pytest

from models.errors import UserError
from models.placement import PlacementSettings
from models.recipe.load import load_recipe


def test_a_recipe_that_says_nothing_runs_in_one_process() -> None:
    assert load_recipe("arithmetic", []).placement == PlacementSettings(learners=1, engines=0, engine_gpus=1)


def test_what_cannot_be_placed_is_one_line_with_its_place_in_the_recipe() -> None:
    with pytest.raises(UserError, match=r"placement.*2 learners cannot be had yet"):
        load_recipe("arithmetic", ["placement.learners=2"])
    with pytest.raises(UserError, match=r"placement\.engines"):
        load_recipe("arithmetic", ["placement.engines=-1"])
    with pytest.raises(UserError, match=r"placement\.engine_gpus"):
        load_recipe("arithmetic", ["placement.engine_gpus=2"])
    with pytest.raises(UserError, match=r"placement\.gpus"):
        load_recipe("arithmetic", ["placement.gpus=2"])


def test_a_cluster_without_anything_to_place_on_it_and_engines_without_ray_are_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with pytest.raises(UserError, match=r"^--cluster 10\.0\.0\.1:6379: nothing is placed there"):
        PlacementSettings().check("10.0.0.1:6379")
    PlacementSettings().check(None)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    PlacementSettings().check(None)
    with pytest.raises(UserError, match=r"^placement\.engines: .* install the extra cluster"):
        PlacementSettings(engines=1).check(None)

"""The settings of `placement`: the defaults, and the settings that are refused in one line before anything starts."""

import importlib.util

import pytest

from models.base.errors import UserError
from models.base.placement import PlacementSettings
from models.recipes.load import load_recipe


def test_a_recipe_that_says_nothing_runs_in_one_process() -> None:
    assert load_recipe("arithmetic", []).placement == PlacementSettings(learners=1, engines=0, engine_gpus=1)


def test_what_cannot_be_placed_is_one_line_with_its_place_in_the_recipe() -> None:
    with pytest.raises(UserError, match=r"placement\.learners"):
        load_recipe("arithmetic", ["placement.learners=0"])
    with pytest.raises(UserError, match=r"placement\.learners is 2, but schedule\.optimiser\.moments is int8"):
        load_recipe("arithmetic", ["placement.learners=2", "schedule.optimiser.moments=int8"])
    with pytest.raises(UserError, match=r"placement\.engines"):
        load_recipe("arithmetic", ["placement.engines=-1"])
    with pytest.raises(UserError, match=r"placement\.engine_gpus"):
        load_recipe("arithmetic", ["placement.engine_gpus=65"])
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
    for placement in (PlacementSettings(engines=1), PlacementSettings(learners=2)):
        with pytest.raises(UserError, match=r"^placement: .* install the extra cluster"):
            placement.check(None)


def test_several_learners_have_an_engine_beside_them() -> None:
    assert PlacementSettings(learners=2).next_to_learners.engines == 1
    assert PlacementSettings(learners=2, engines=3).next_to_learners.engines == 3
    assert PlacementSettings().next_to_learners == PlacementSettings()

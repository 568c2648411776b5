"""Every recipe has a plan, whatever it trains."""

from pathlib import Path

import pytest

from models.recipes.load import load_recipe
from models.recipes.plan.report import planned

RECIPES = sorted((Path(__file__).resolve().parents[4] / "recipes").rglob("*.yaml"))


@pytest.mark.rotating(of=24)
@pytest.mark.parametrize("file", RECIPES, ids=lambda file: file.stem)
def test_a_recipe_has_a_plan_with_all_of_its_stages(file: Path) -> None:
    recipe = load_recipe(file)
    page, fits = planned(recipe, 256, 80)
    assert fits and "\nfits: " in page, page
    there = {"loop": recipe.schedule, "warm start": recipe.warm_start, "reward model": recipe.reward_model}
    (line,) = (line for line in page.splitlines() if line.startswith("stages "))
    assert set(line.removeprefix("stages").strip().split(", then ")) == {name for name in there if there[name]}


@pytest.mark.rotating(of=6)
@pytest.mark.parametrize("layers", [1, 2, 3])
@pytest.mark.parametrize("name", ["self_play_kuhn", "arithmetic"])
def test_a_model_of_few_layers_has_a_plan(name: str, layers: int) -> None:
    page, fits = planned(load_recipe(name, [f"policy.size.layers={layers}"]), 64, None)
    assert fits, page


@pytest.mark.rotating(of=6)
@pytest.mark.parametrize("name", ["hh", "real/qwen3_06b_hh_reward_model"])
def test_a_recipe_that_ends_after_its_reward_model_is_planned_for_that(name: str) -> None:
    page, fits = planned(load_recipe(name), 256, 80)
    assert fits and "schedule.token_budget" not in page and "reward_model.fit.token_budget" in page
    page, fits = planned(load_recipe(name), 256, 0.05)
    assert not fits and "does not fit" in page

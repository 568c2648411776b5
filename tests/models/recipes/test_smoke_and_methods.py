"""Smoke runs of every recipe, and the table of methods that the recipes make."""

from pathlib import Path

import pytest

from models.base.errors import UserError
from models.recipes.find import find_recipe, method_files
from models.recipes.load import load_recipe
from models.recipes.methods import as_markdown, as_text, every_method, methods, of_family
from models.recipes.smoke import made_small, smoke_overrides
from models.recipes.stages import first_stage

ROOT = Path(__file__).resolve().parents[3]
RECIPES = method_files(ROOT / "recipes")


@pytest.mark.parametrize("file", RECIPES, ids=lambda file: file.stem)
def test_every_recipe_made_small_is_still_a_recipe_and_apart_from_the_real_one(file: Path) -> None:
    recipe = load_recipe(file, smoke_overrides(load_recipe(file)))
    assert recipe.name == f"{file.stem}-smoke"
    first = first_stage(recipe)
    assert first.name.endswith("-smoke") and first.warm_start is not None
    assert first.policy.size.hidden == 64 and first.warm_start.steps == 2
    if recipe.schedule is not None:
        assert recipe.schedule.rounds == 2 and recipe.rollouts.prompts <= 4
        assert all(reward.limits.patience == 1 for reward in recipe.rewards)  # a reward that always fails is an error
    if recipe.schedule is not None and recipe.rollouts.episodes is not None:
        assert any(reward.name == "coin" and reward.weight for reward in recipe.rewards)


def test_what_the_user_sets_goes_on_top() -> None:
    file = ROOT / "recipes" / "arithmetic.yaml"
    schedule = load_recipe(file, made_small(file, ["schedule.rounds=3"])).schedule
    assert schedule is not None and schedule.rounds == 3


def test_what_the_user_sets_needs_room_in_the_small_recipe_alone() -> None:
    small = load_recipe("arithmetic", made_small("arithmetic", ["evaluation.samples=2"]))
    assert (small.evaluation.samples, small.evaluation.ks) == (2, (1,))
    with pytest.raises(UserError, match=r"evaluation\.ks holds 16, but evaluation\.samples is 2"):
        load_recipe("arithmetic", ["evaluation.samples=2"])
    with pytest.raises(UserError, match=r"evaluation\.ks holds 4, but evaluation\.samples is 2"):
        made_small("arithmetic", ["evaluation.samples=2", "evaluation.ks=[1, 4]"])


def test_the_page_of_methods_is_the_one_that_the_recipes_make() -> None:
    assert (ROOT / "docs" / "methods.md").read_text() == as_markdown(every_method(ROOT / "recipes")), (
        "run: rewardflow methods --markdown > docs/methods.md"
    )


@pytest.mark.rotating(of=6)
def test_every_recipe_is_listed_once_with_its_slots_and_its_paper() -> None:
    listed = methods(ROOT / "recipes")
    every = list((ROOT / "recipes").rglob("*.yaml"))
    assert sorted(method.file for method in listed) == sorted(str(file.relative_to(ROOT)) for file in every)
    assert {find_recipe(method.name) for method in listed} == {file.relative_to(ROOT) for file in every}
    (main,) = (method for method in listed if method.name == "arithmetic")
    assert main.slots[0] == "sample" and main.slots[4] == "grpo" and "2402.03300" in main.paper
    text = as_text(listed)
    assert all(rollout.name in text for rollout in listed) and "exact_answer + reward_model" in text


def test_every_recipe_says_in_its_first_line_what_it_is_and_names_its_paper() -> None:
    for method in methods(ROOT / "recipes"):
        first = (ROOT / method.file).read_text().splitlines()[0]
        assert first.startswith("# ") and method.paper, method.name


def test_a_file_that_is_no_recipe_is_named(tmp_path: Path) -> None:
    (tmp_path / "odd.yaml").write_text("shedule: {}")
    with pytest.raises(UserError, match=r"odd\.yaml: shedule"):
        methods(tmp_path)


def test_a_folder_without_recipes_is_named_and_no_empty_table(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"recipes/: no recipes here"):
        methods(tmp_path / "recipes")


def test_an_empty_file_is_a_recipe_of_defaults(tmp_path: Path) -> None:
    (tmp_path / "plain.yaml").write_text("")
    (method,) = methods(tmp_path)
    assert (method.name, method.slots[0], method.paper) == ("plain", "sample", "")


@pytest.mark.rotating(of=6)
def test_the_methods_of_a_family_are_those_alone_and_a_family_that_is_none_is_named() -> None:
    listed = methods(ROOT / "recipes")
    agents = of_family(listed, "agents")
    assert "calculator" in [method.name for method in agents] and {method.family for method in agents} == {"agents"}
    with pytest.raises(UserError, match="--family: no recipe is of the family 'agent'; there are agents, analysis"):
        of_family(listed, "agent")

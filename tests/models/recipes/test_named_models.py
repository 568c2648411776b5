"""The section `models`: references of parts, teacher and judge to frozen models, and errors."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from models.base.errors import UserError
from models.policies.folder import save_model_folder
from models.recipes.files import require_files
from models.recipes.load import load_recipe
from models.recipes.named_models import entries_of_parts, references, with_folders
from models.recipes.schema import Recipe
from models.recipes.smoke import smoke_overrides
from models.recipes.teachers import all_frozen, frozen_models, named_models, recipe_of
from tasks.runner.contents import content_of
from tests.support.tiny_loops import TOKENIZER
from tests.support.tiny_models import tiny_policy

RECIPE = """
reward_model: null
rewards: [{name: coin}]
models: {rival: {recipe: arithmetic, set: [seed=4]}}
rollouts: {name: episodes, max_tokens: 16, environment: {name: table, others: frozen, model: rival}}
evaluation: {max_tokens: 16}
"""
PARTNER = "rollouts.environment={name: partner, model: %s}"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Return a recipe whose policy plays against a model that another recipe makes."""
    written = tmp_path / "mine.yaml"
    written.write_text(RECIPE)
    return written


def environment_of(recipe: Recipe) -> Any:
    assert recipe.rollouts.episodes is not None
    return recipe.rollouts.episodes.environment


def refused(file: Path, *overrides: str) -> str:
    with pytest.raises(UserError) as error:
        require_files(load_recipe(file, overrides))
    assert "\n" not in str(error.value)
    return str(error.value).removeprefix(f"{file}: ")


@pytest.mark.parametrize("part", ["", PARTNER % "rival"])
def test_an_environment_refers_to_an_entry_whose_recipe_is_loaded_with_its_overrides(file: Path, part: str) -> None:
    recipe = load_recipe(file, [part] if part else [])
    assert references(recipe) == [("rollouts.environment.model", "rival")] and entries_of_parts(recipe) == ["rival"]
    assert list(all_frozen(recipe)) == list(named_models(recipe)) == ["models.rival"] and not frozen_models(recipe)
    assert recipe_of(recipe.models["rival"], recipe, "models.rival").seed == 4
    require_files(recipe)


def test_a_reference_becomes_the_folder_and_nothing_else_changes(file: Path, tmp_path: Path) -> None:
    recipe = load_recipe(file)
    resolved = with_folders(recipe, {"rival": tmp_path / "made"})
    environment = environment_of(resolved)
    assert environment.frozen == tmp_path / "made" and environment_of(recipe).model == "rival"
    assert replace(environment, model="rival") == environment_of(recipe)
    assert resolved.model_copy(update={"rollouts": recipe.rollouts}) == recipe
    assert with_folders(recipe, {}) == recipe


def test_the_default_stays_the_policy_that_the_run_began_with_and_a_folder_is_accepted(
    file: Path, tmp_path: Path
) -> None:
    own = load_recipe(file, ["models={}", "rollouts.environment.model=''"])
    assert references(own) == [] and environment_of(own).frozen is None
    save_model_folder(tiny_policy(torch.float32, hidden=32), TOKENIZER, tmp_path / "rival")
    folder = load_recipe(file, ["models={}", f"rollouts.environment.model={tmp_path / 'rival'}"])
    require_files(folder)
    assert environment_of(folder).frozen == tmp_path / "rival" and not all_frozen(folder)


def test_the_content_of_a_made_model_is_part_of_the_key(file: Path, tmp_path: Path) -> None:
    def key(seed: int) -> Any:
        save_model_folder(tiny_policy(torch.float32, seed=seed, hidden=32), TOKENIZER, tmp_path / f"made{seed}")
        return content_of(environment_of(with_folders(load_recipe(file), {"rival": tmp_path / f"made{seed}"})))

    first, other = key(1), key(2)
    assert first["model"] != other["model"] and first["model"].startswith("sha256:")


@pytest.mark.parametrize(
    ("overrides", "line"),
    [
        (["rollouts.environment.model=''"], "models.rival: nothing in the recipe refers to it, such as an"),
        (["models={}"], "rollouts.environment.model: 'rival' is neither a model folder nor an entry of models; there"),
        (
            ["rollouts.environment.model=./rival", "models={}"],
            "rollouts.environment.model: rival: no such model folder",
        ),
        (["models.rival={}"], "models.rival: exactly one of path, recipe and address must be set; 0 are"),
        (["models.rival.path=folder"], "models.rival: exactly one of path, recipe and address must be set; 2 are"),
        (["models.rival={recipe: gone}"], "gone: no such recipe"),
        (["models.rival={path: gone}"], "models.rival.path: gone: no such model folder"),
        (["models.Rival={recipe: arithmetic}"], "models.Rival"),
        (
            ["models.rival={address: 'http://127.0.0.1:1/v1'}"],
            "models.rival.address: rollouts.environment.model needs a model on this machine, and one on a server is",
        ),
        (["judge={name: grader}"], "judge.name: 'grader' is not an entry of models; there are rival"),
        (["judge={name: rival}"], "judge: no part of the recipe asks one"),
    ],
)
def test_a_wrong_entry_or_reference_is_one_line(file: Path, overrides: list[str], line: str) -> None:
    assert refused(file, *overrides).startswith(line)


def test_teacher_and_judge_refer_to_an_entry_too() -> None:
    entries = "models={wide: {recipe: solver, set: [seed=3]}, grader: {address: 'http://127.0.0.1:1/v1', model: m}}"
    recipe = load_recipe("gkd", [entries, "teacher={name: wide}", "rewards=[{name: judge_score}]",
                                 "judge={name: grader, max_tokens: 7}"])  # fmt: skip
    assert recipe.teacher is not None and (recipe.teacher.recipe, recipe.teacher.set) == ("solver", ("seed=3",))
    assert recipe.judge is not None and (recipe.judge.model, recipe.judge.max_tokens) == ("m", 7)
    assert recipe_of(frozen_models(recipe)["teacher"], recipe, "teacher").seed == 3


def test_a_smoke_run_makes_the_model_small(file: Path) -> None:
    recipe = load_recipe(file)
    small = load_recipe(file, smoke_overrides(recipe))
    made = recipe_of(small.models["rival"], small, "models.rival")
    assert made.name == "arithmetic-smoke" and made.schedule is not None and made.schedule.rounds == 2
    assert made.seed == 4 and environment_of(small).model == "rival"

"""Recipes built in Python: overrides, functions as rewards, files; and the check of the package's names."""

import subprocess
import sys
from pathlib import Path

import pytest
import yaml

import rewardflow
from models.recipes.load import load_recipe
from rewardflow.own_packages import require_own_packages
from rewardflow.recipe import Recipe, overrides_of


def brevity(completions: list[str], **columns: object) -> list[float]:
    """Return the negative length of each completion."""
    return [-float(len(completion)) for completion in completions]


def test_sections_and_double_underscores_become_paths() -> None:
    assert overrides_of({"schedule": {"rounds": 20, "optimiser": {"learning_rate": 1e-5}}, "gate__samples": 2}) == [
        "schedule.rounds=20",
        "schedule.optimiser.learning_rate=1e-05",
        "gate.samples=2",
    ]


def test_a_part_with_its_settings_is_one_value() -> None:
    overrides = overrides_of({"objective": {"name": "grpo", "kl": 0.02}, "reward_model": None})
    assert overrides == ['objective={"name": "grpo", "kl": 0.02}', "reward_model=null"]
    recipe = load_recipe("arithmetic", [*overrides, 'rewards=["exact_answer"]'])
    assert recipe.objective.name == "grpo" and recipe.objective.kl == 0.02


def test_a_function_of_a_file_is_a_reward() -> None:
    (override,) = overrides_of({"rewards": ["exact_answer", brevity]})
    _, reward = yaml.safe_load(override.partition("=")[2])
    assert reward == {"name": "python", "path": str(Path(__file__)), "function": "brevity", "label": "brevity"}
    recipe = Recipe("short", extends="arithmetic", rewards=["exact_answer", brevity], reward_model=None)
    recipe.check()
    loaded = load_recipe(recipe.extends, recipe.overrides)
    assert [reward.label for reward in loaded.rewards] == ["exact_answer", "brevity"]


def test_a_function_without_a_file_or_inside_another_is_refused_in_one_line() -> None:
    with pytest.raises(rewardflow.UserError, match="not a function at the top of a file"):
        overrides_of({"rewards": [lambda completions: completions]})


def test_a_value_without_a_form_in_yaml_is_refused_with_its_key() -> None:
    with pytest.raises(rewardflow.UserError, match=r"^schedule\.rounds: "):
        overrides_of({"schedule": {"rounds": float("nan")}})
    with pytest.raises(rewardflow.UserError, match=r"^select: "):
        overrides_of({"select": Path})


def test_a_wrong_key_is_an_error_of_the_recipe_with_the_nearest_key() -> None:
    with pytest.raises(rewardflow.UserError, match="rounds"):
        Recipe("short", extends="arithmetic", schedule={"round": 3}).check()


def test_a_saved_recipe_loads_as_the_recipe_itself_and_is_not_overwritten(tmp_path: Path) -> None:
    recipe = Recipe("short", extends="arithmetic", schedule={"rounds": 3}, objective="gspo")
    file = recipe.save(tmp_path)
    saved, built = load_recipe(file), load_recipe(recipe.extends, recipe.overrides)
    assert saved == built and saved.name == "short"
    with pytest.raises(rewardflow.UserError, match="exists already"):
        recipe.save(tmp_path)


def test_another_package_named_models_is_reported_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "__init__.py").touch()
    program = f"import sys; sys.path.insert(0, {str(tmp_path)!r}); import rewardflow"
    finished = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, cwd=tmp_path)
    assert finished.returncode == 1
    last = finished.stderr.strip().splitlines()[-1]
    assert last.startswith(f"ImportError: rewardflow: its package 'models' imports {tmp_path / 'models'} instead of ")


def test_the_own_packages_are_accepted() -> None:
    require_own_packages()


def test_importing_the_package_imports_nothing_heavy() -> None:
    program = "import rewardflow, sys; print([name for name in ('torch', 'mlflow', 'prefect') if name in sys.modules])"
    finished = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert finished.stdout.strip() == "[]"


def test_every_public_name_exists() -> None:
    assert all(getattr(rewardflow, name) is not None for name in rewardflow.__all__)
    with pytest.raises(AttributeError, match="no attribute 'train'"):
        _ = rewardflow.train  # type: ignore[attr-defined]

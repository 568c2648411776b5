"""The recipes translated from other projects load, and the settings that their tables name exist."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from models.recipes.load import load_recipe, plain
from models.recipes.schema import Recipe
from tests.support.guide import ROOT

TEXT = (ROOT / "docs" / "coming_from.md").read_text()
FILE = re.compile(r"^```(?:yaml|python)\n# (\w+\.(?:yaml|py))\n(.*?)^```$", flags=re.MULTILINE | re.DOTALL)
RECIPES = ["trl_gsm8k_grpo", "verl_gsm8k_ppo", "prime_rl_reverse_text"]
ROW = re.compile(r"^\| [^|]+ \| ([^|]+) \|$", flags=re.MULTILINE)


@pytest.fixture(scope="module")
def recipes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Recipe]:
    """Write the files of the page into a folder, as a reader does, and load every recipe."""
    folder: Path = tmp_path_factory.mktemp("translated")
    for name, text in FILE.findall(TEXT):
        (folder / name).write_text(text)
    return {file.stem: load_recipe(file) for file in folder.glob("*.yaml")}


def paths(value: Any, before: str = "") -> Iterator[str]:
    """Yield the dotted paths of all keys of nested mappings."""
    for key, below in value.items() if isinstance(value, dict) else ():
        yield f"{before}{key}"
        yield from paths(below, f"{before}{key}.")


def test_every_recipe_of_the_page_loads(recipes: dict[str, Recipe]) -> None:
    assert sorted(recipes) == sorted(RECIPES)
    assert len(re.findall(r"^```yaml$", TEXT, flags=re.MULTILINE)) == len(RECIPES)


@pytest.mark.parametrize(
    ("name", "completions", "rounds", "updates", "rate"),
    [
        ("trl_gsm8k_grpo", 16 * 4, 7473 // 8, 7473 // 8, 1e-6),
        ("verl_gsm8k_ppo", 256, 15 * (7473 // 256), 15 * (7473 // 256) * (256 // 64), 1e-6),
        ("prime_rl_reverse_text", 128, 20, 20, 3e-6),
    ],
)
def test_a_translation_has_the_size_of_its_original(
    recipes: dict[str, Recipe], name: str, completions: int, rounds: int, updates: int, rate: float
) -> None:
    recipe = recipes[name]
    assert recipe.schedule is not None
    assert recipe.rollouts.prompts * plain(recipe)["rollouts"]["group_size"] == completions
    assert (recipe.schedule.rounds, recipe.schedule.updates) == (rounds, updates)
    assert recipe.schedule.optimiser.learning_rate == rate


def test_every_setting_of_the_tables_exists(recipes: dict[str, Recipe]) -> None:
    known = {path for recipe in recipes.values() for path in paths(plain(recipe))}
    sections = {path for path in known if "." not in path}
    spans = [span for cell in ROW.findall(TEXT) for span in re.findall(r"`([\w.]+)`", cell)]
    named = [span for span in spans if "." in span and span.split(".")[0] in sections]
    assert len(named) > 30
    assert [span for span in named if span not in known] == []


def test_the_reward_of_the_page_finds_the_right_answer(tmp_path: Path) -> None:
    (code,) = (text for name, text in FILE.findall(TEXT) if name == "my_rewards.py")
    names: dict[str, Any] = {}
    exec(code, names)
    assert names["accuracy"](["it is 42", "it is 41"], ["2 * 21 = 42\n#### 42", "42"]) == [1.0, 0.0]

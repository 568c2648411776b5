"""The recipes for real models load, fit their GPU by the plan, and pass the checks with a tiny model of their kind."""

from pathlib import Path

import pytest

from models.policies.base_models.catalogue import CATALOGUE
from models.policies.hub import origin_of, unpinned_base
from models.recipes.files import require_files
from models.recipes.find import find_recipe
from models.recipes.load import load_recipe, plain
from models.recipes.plan.report import planned
from models.recipes.smoke import made_small
from tests.support.real_models import QWEN, RECIPES, ROOT, data_of, save_tiny_qwen


@pytest.fixture(scope="session")
def tiny_qwen(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny_qwen(tmp_path_factory.mktemp("base") / "Qwen3-tiny")


def test_both_sizes_have_grpo_whole_and_with_adapters_dpo_and_a_reward_model() -> None:
    kinds = ("gsm8k_grpo", "gsm8k_grpo_lora", "hh_dpo", "hh_reward_model")
    assert [file.stem for file in QWEN] == [f"qwen3_{size}_{kind}" for size in ("06b", "17b") for kind in kinds]


@pytest.mark.rotating(of=6)
@pytest.mark.parametrize("file", RECIPES, ids=lambda file: file.stem)
def test_a_recipe_for_a_real_model_says_where_its_settings_are_from_and_fits_80_gib(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    assert find_recipe(file.stem) == find_recipe(f"real/{file.stem}") == file.relative_to(ROOT)
    head = [line for line in file.read_text().splitlines() if line.startswith("#")]
    for key in ("# Run: ", "# Idea: ", "# Published", "# Here: "):
        assert sum(line.startswith(key) for line in head) == 1, key
    assert max(map(len, head)) <= 120
    recipe = load_recipe(f"real/{file.stem}")
    size = recipe.policy.size
    assert recipe.policy.base is not None
    if file in QWEN:
        assert not unpinned_base(recipe.policy.base)
        name, _ = origin_of(recipe.policy.base)
        assert (name, size.hidden) in (("Qwen/Qwen3-0.6B", 1024), ("Qwen/Qwen3-1.7B", 2048))
    else:
        assert recipe.policy.base in CATALOGUE
    assert recipe.source.title
    page, fits = planned(recipe, 256, 80)
    assert fits and "\nfits: " in page, page


@pytest.mark.parametrize("file", RECIPES, ids=lambda file: file.stem)
def test_a_recipe_for_a_real_model_is_checked_whole_on_a_model_of_its_architecture(
    file: Path, tiny_qwen: Path, shared_data: Path
) -> None:
    given = [f"policy.base={tiny_qwen}", *data_of(file, shared_data)]
    whole = load_recipe(file, given)
    require_files(whole)
    small = load_recipe(file, made_small(file, given))
    require_files(small)
    assert small.name == f"{file.stem}-smoke" and plain(small)["policy"]["base"] == str(tiny_qwen)
    if small.schedule is not None and small.rollouts.draws:
        longest = min(256, whole.rollouts.max_tokens)
        assert small.rollouts.max_tokens == (small.evaluation.max_tokens or longest) == longest

"""What must be true of how files that a recipe names enter a step's key, each test named as the theorem it checks."""

import pytest
import torch
from safetensors.torch import save_file

from models.errors import UserError
from models.recipe.load import load_recipe, plain, require_files
from tasks.contents import policy_inputs
from tasks.step import content_key


def policy(**changed):
    return {"base": None, "subnetwork": None, "chat": False} | changed


def key(**changed):
    return content_key("fine_tune", policy_inputs(policy(**changed)))


@pytest.fixture
def base(tmp_path):
    folder = tmp_path / "base"
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    save_file({"weight": torch.zeros(3)}, folder / "model.safetensors")
    return folder


def test_other_weights_under_the_same_path_have_another_key_and_the_same_elsewhere_have_the_same(base, tmp_path):
    before = key(base=str(base))
    save_file({"weight": torch.ones(3)}, base / "model.safetensors")
    after = key(base=str(base))
    assert before != after == key(base=str(base.rename(tmp_path / "moved")))


def test_other_masks_under_the_same_path_have_another_key(tmp_path):
    file = tmp_path / "masks.safetensors"
    keys = set()
    for masks in (torch.zeros(3), torch.ones(3)):
        save_file({"weight": masks.bool()}, file)
        keys.add(key(subnetwork={"masks": str(file), "share": 1.0, "seed": 0}))
    assert len(keys) == 2


def test_a_hub_name_and_all_other_settings_stay_as_they_are():
    section = policy(base="Qwen/Qwen3-0.6B", subnetwork={"masks": None, "share": 0.5, "seed": 0})
    assert policy_inputs(section) == section and policy_inputs(policy()) == policy()


def test_the_section_of_a_recipe_is_left_as_it_was(base):
    section = policy(base=str(base))
    policy_inputs(section)
    assert section == policy(base=str(base))


def test_masks_that_are_not_there_are_refused_before_anything_starts(tmp_path, monkeypatch):
    (tmp_path / "mine.yaml").write_text("policy: {subnetwork: {masks: gone.safetensors}}")
    monkeypatch.chdir(tmp_path)
    recipe = load_recipe("mine.yaml")
    with pytest.raises(UserError, match=r"^policy\.subnetwork\.masks: gone\.safetensors: no such file$"):
        require_files(recipe)
    save_file({"weight": torch.ones(3).bool()}, tmp_path / "gone.safetensors")
    require_files(recipe)
    assert policy_inputs(plain(recipe)["policy"])["subnetwork"]["masks"].startswith("sha256:")

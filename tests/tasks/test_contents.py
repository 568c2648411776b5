"""What must be true of how inputs and files that a recipe names enter a step's key, each test a theorem by its name."""

import json
from dataclasses import asdict
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from models.errors import UserError
from models.policy.build import PolicySettings
from models.policy.update_sparsity import SubnetworkSettings
from models.recipe.files import require_files
from models.recipe.load import load_recipe
from tasks.contents import content_of
from tasks.step import content_key


def key(**changed):
    return content_key("fine_tune", PolicySettings(**changed))


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
        keys.add(key(subnetwork=SubnetworkSettings(masks=str(file))))
    assert len(keys) == 2


def test_a_hub_name_and_all_other_settings_stay_as_they_are():
    section = PolicySettings(base="Qwen/Qwen3-0.6B", subnetwork=SubnetworkSettings(share=0.5))
    for each in (section, PolicySettings()):
        assert content_of(each) == json.loads(json.dumps(asdict(each)))  # a key holds lists, not tuples


def test_masks_that_are_not_there_are_refused_before_anything_starts(tmp_path, monkeypatch):
    (tmp_path / "mine.yaml").write_text("policy: {subnetwork: {masks: gone.safetensors}}")
    monkeypatch.chdir(tmp_path)
    recipe = load_recipe("mine.yaml")
    with pytest.raises(UserError, match=r"^policy\.subnetwork\.masks: gone\.safetensors: no such file$"):
        require_files(recipe)
    with pytest.raises(UserError, match=r"^policy\.subnetwork\.masks: gone\.safetensors: no such file$"):
        content_of(recipe.policy)
    save_file({"weight": torch.ones(3).bool()}, tmp_path / "gone.safetensors")
    require_files(recipe)
    assert content_of(recipe.policy)["subnetwork"]["masks"].startswith("sha256:")


@pytest.mark.parametrize("value", [Path("rows.jsonl"), {"of": [Path("rows.jsonl")]}, print, object()])
def test_what_nothing_says_the_content_of_can_be_in_no_key(value):
    """A file changes under the same path: its key would take the result of another one."""
    with pytest.raises(TypeError, match="nothing says what its content is"):
        content_key("a step", value)

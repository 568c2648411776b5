"""Contents in a step's key: files that a recipe names enter the key by content, and missing files are refused."""

import json
import os
from dataclasses import asdict
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from models.agents.environments.partner import Partner
from models.agents.environments.table import Table
from models.agents.environments.textworld import TextWorld
from models.agents.environments.tools import Tools
from models.agents.strategies.value_guided import ValueGuided
from models.agents.tools.mcp import Mcp
from models.base.errors import UserError
from models.parts.rollouts.episodes import Episodes
from models.parts.rollouts.program import ProgramRollouts
from models.policies.build import PolicySettings
from models.policies.update_sparsity import SubnetworkSettings
from models.recipes.files import require_files
from models.recipes.load import load_recipe
from tasks.runner import contents
from tasks.runner.contents import content_of
from tasks.runner.step import content_key


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


@pytest.mark.parametrize("way", ["written over", "put in its place"])
def test_other_weights_of_the_same_size_and_time_have_another_key_in_the_same_process(base, monkeypatch, way):
    """`cp -p`, `rsync -t` and `tar -x` leave such files. Here all files are old enough to have their hashes cached."""
    weights = base / "model.safetensors"
    was = weights.stat()
    monkeypatch.setattr(contents, "SETTLED", -(10**18))  # every file counts as old
    before = key(base=str(base))
    assert before == key(base=str(base)) and contents._hashed.cache_info().hits
    other = weights if way == "written over" else base.with_name("other")
    save_file({"weight": torch.ones(3)}, other)
    os.utime(other, ns=(was.st_atime_ns, was.st_mtime_ns))
    while other.stat().st_ctime_ns == was.st_ctime_ns:  # until the file system's clock has ticked
        os.utime(other, ns=(was.st_atime_ns, was.st_mtime_ns))
    other.replace(weights)
    assert (weights.stat().st_size, weights.stat().st_mtime_ns) == (was.st_size, was.st_mtime_ns)
    assert key(base=str(base)) != before


def test_a_file_whose_content_was_changed_just_now_is_read_each_time_whatever_its_time_says(base):
    for file in base.iterdir():
        os.utime(file, (0, 0))
    misses = contents._hashed.cache_info().misses
    key(base=str(base))
    assert contents._hashed.cache_info().misses == misses


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
        assert content_of(each) == json.loads(json.dumps(asdict(each)))  # a key contains lists, not tuples


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
    """The content at a path can change. A key made of the path would reuse the result for other content."""
    with pytest.raises(TypeError, match="its content is not defined"):
        content_key("a step", value)


def files_of(folder: Path, names: str) -> list[Path]:
    made = [folder / name for name in names.split()]
    for file in made:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("before")
    return made


@pytest.mark.parametrize(
    "words", [("python", "agent.py"), ("./agent.py", "--seed", "3"), ("sh", "-c", "./x", "agent.py")]
)
def test_another_agent_program_or_server_under_the_same_command_is_another_key(tmp_path, monkeypatch, words):
    monkeypatch.chdir(tmp_path)
    (agent,) = files_of(tmp_path, "agent.py")
    makers = (lambda: ProgramRollouts(command=words), lambda: Tools(tool=[Mcp(command=words)]))
    before = [content_key("fine_tune", make()) for make in makers]
    assert before == [content_key("fine_tune", make()) for make in makers]
    assert [[file.text for file in make().given] for make in makers] == [["before"]] * 2
    agent.write_text("after!")
    assert not set(before) & {content_key("fine_tune", make()) for make in makers}
    moved = content_key("fine_tune", ProgramRollouts(command=("python", "elsewhere.py")))
    agent.rename("elsewhere.py")
    assert content_key("fine_tune", ProgramRollouts(command=("python", "elsewhere.py"))) != moved, (
        "a file is its content"
    )


def test_a_program_that_is_no_text_counts_too_but_is_no_text_of_the_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (agent,) = files_of(tmp_path, "agent")
    agent.write_bytes(b"\xff\xfe one")
    before, given = (
        content_key("fine_tune", ProgramRollouts(command=("./agent",))),
        ProgramRollouts(command=("./agent",)).given,
    )
    agent.write_bytes(b"\xff\xfe two")
    assert content_key("fine_tune", ProgramRollouts(command=("./agent",))) != before and given == ()


@pytest.mark.parametrize(
    "make",
    [
        lambda: Episodes(environment=TextWorld(games="games")),
        lambda: Episodes(environment=Partner(model="games")),
        lambda: Episodes(environment=Table(model="games")),
    ],
)
def test_another_game_or_partner_in_the_same_folder_is_another_key(tmp_path, monkeypatch, make):
    monkeypatch.chdir(tmp_path)
    nowhere = content_key("fine_tune", make())
    (game,) = files_of(tmp_path, "games/a.z8")
    before = content_key("fine_tune", make())
    game.write_text("after!")
    assert len({nowhere, before, content_key("fine_tune", make())}) == 3


def test_another_value_model_in_the_same_folder_is_another_key(base, tmp_path):
    strategy = ValueGuided(values=(str(base), str(tmp_path / "nowhere")), betas=(1.0, 2.0))
    before = content_key("evaluate_strategy", strategy)
    assert content_key("evaluate_strategy", strategy) == before
    save_file({"weight": torch.ones(3)}, base / "model.safetensors")
    assert content_key("evaluate_strategy", strategy) != before

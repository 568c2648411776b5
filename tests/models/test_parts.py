"""What must be true of the registry of parts, each test named as the theorem it checks."""

import dataclasses
import subprocess
import sys
from pathlib import Path

import pytest

from models import parts as registry
from models.loop import slots
from models.parts import PACKAGES, part, parts

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(autouse=True)
def same_parts_after(monkeypatch):
    for slot in PACKAGES:
        parts(slot)  # imported now: what registers while a test runs is forgotten after it
    monkeypatch.setattr(registry, "_PARTS", {slot: dict(found) for slot, found in registry._PARTS.items()})


@pytest.mark.parametrize("slot", PACKAGES)
def test_every_slot_has_parts_that_are_frozen_and_know_their_name(slot):
    found = parts(slot)
    assert found and list(found) == sorted(found)
    for name, made in found.items():
        built = made()
        assert built.name == name
        with pytest.raises(dataclasses.FrozenInstanceError):
            built.name = "other"


def test_a_new_file_is_found_by_itself(tmp_path, monkeypatch):
    """In a process of its own: a package with one more folder on its path is all it takes."""
    (tmp_path / "brevity.py").write_text(
        "from models.parts import part\n"
        "@part('reward', 'brevity')\n"
        "class Brevity:\n"
        "    needs_reward_model = False\n"
        "    weight: float = 1.0\n"
        "    label: str = 'brevity'\n"
        "    def __call__(self, world, rollouts): ...\n"
    )
    code = (
        f"import models.rewards; models.rewards.__path__.append({str(tmp_path)!r})\n"
        "from models.recipe.schema import recipe_type\n"
        "recipe = recipe_type().model_validate({'name': 'r', 'rewards': {'name': 'brevity', 'weight': 2}})\n"
        "print(recipe.rewards[0].name, recipe.rewards[0].weight)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT)
    assert done.stdout.split() == ["brevity", "2.0"], done.stderr


def test_two_parts_of_one_name_are_refused():
    parts("reward")

    class Impostor:
        pass

    with pytest.raises(ValueError, match="two parts are called 'exact_answer' in the slot reward"):
        part("reward", "exact_answer")(Impostor)


def test_the_same_name_may_stand_in_two_slots():
    @part("select", "grpo")
    class Other:
        pass

    assert parts("select")["grpo"] is Other and parts("objective")["grpo"] is not Other


def test_the_slots_have_the_fields_that_the_loop_asks_of_them():
    for slot, wanted in {"rollouts": slots.Source, "reward": slots.Reward, "objective": slots.Objective}.items():
        needed = set(getattr(wanted, "__annotations__", {}))
        for made in parts(slot).values():
            assert needed <= set(dir(made)) | set(made.__dataclass_fields__)

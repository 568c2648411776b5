"""The plan of a policy that reads images: its parameters, what learns, and the activations of its vision tower."""

from pathlib import Path

import pytest
import torch

from models.base.images import images_in
from models.learner.image_features import image_features
from models.policies.build import new_shapes, open_policy
from models.recipes.load import load_recipe
from models.recipes.plan import activations
from models.recipes.plan.activations import tower_activations
from models.recipes.plan.alive import Alive
from models.recipes.plan.configs import policy_config
from models.recipes.plan.footprint import Device, footprint
from models.recipes.plan.rows import loop_row
from tests.support import vision_families
from tests.support.vision_families import FAMILIES, random_picture, save_base

CPU = Device("cpu", 2**40)
WIDE = {"hidden_size": 192, "intermediate_size": 768, "num_hidden_layers": 6, "num_attention_heads": 4}
"""Sizes of a tower at which its layers need most of the memory."""
OF_QWEN = {"hidden_size": 192, "intermediate_size": 768, "depth": 6, "num_heads": 4}


def test_a_policy_made_from_its_size_is_planned_with_its_tower() -> None:
    recipe = load_recipe("images/scenes", ["engine.name=transformers"])
    config, origin = policy_config(recipe)
    row = loop_row(recipe, config, 24, CPU)
    planned = footprint(recipe, config, row, CPU, None)
    with torch.device("meta"):
        model = new_shapes(config)
    expected = sum(weight.numel() for weight in model.parameters())
    text = sum(weight.numel() for weight in model.model.text_model.parameters())
    assert planned.parameters == planned.trained == expected > 1.5 * text
    assert (planned.weights, planned.gradients, planned.optimiser) == (4 * expected, 4 * expected, 8 * expected)
    assert planned.vision == tower_activations(model, row.prompts) > 0
    assert row.prompts > 1 and origin == "policy.size of the recipe"


@pytest.mark.rotating(of=3)
@pytest.mark.parametrize("family", FAMILIES)
def test_the_parts_that_learn_are_those_of_the_setting(family: str, tmp_path: Path) -> None:
    base = save_base(family, tmp_path)
    planned = {}
    for train in ("language", "connector", "vision", "language, connector, vision"):
        settings = [f"policy.base={base}", "policy.precision=float32", f"policy.train=[{train}]"]
        recipe = load_recipe("gsm8k", [*settings, "rollouts={prompts: 4, group_size: 2, max_tokens: 16}"])
        config, _ = policy_config(recipe)
        planned[train] = footprint(recipe, config, loop_row(recipe, config, 40, CPU), CPU, None)
    whole = planned.pop("language, connector, vision")
    assert whole.trained == whole.parameters == sum(part.trained for part in planned.values())
    assert {name: part.vision > 0 for name, part in planned.items()} == {
        "language": False, "connector": False, "vision": True,
    }  # fmt: skip
    assert all(part.activations > 0 and part.vision in (0, whole.vision) for part in planned.values())


@pytest.mark.rotating(of=3)
@pytest.mark.parametrize("family", FAMILIES)
def test_the_estimate_is_near_what_a_tower_keeps(family: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    of_qwen = vision_families._qwen
    monkeypatch.setattr(vision_families, "TOWER", vision_families.TOWER | WIDE)
    monkeypatch.setattr(vision_families, "_qwen", lambda kind, tower: of_qwen(kind, {**tower, **OF_QWEN}))
    monkeypatch.setattr(activations, "PATCHES", 16)
    model, _ = open_policy(save_base(family, tmp_path))
    names = images_in("".join(random_picture(32, 32, seed) for seed in range(8)))
    with Alive(model.parameters()) as alive:
        features = image_features(model.base_model, names)
        kept = alive.now
    assert len(features.values) == 8
    assert 0.7 * kept < tower_activations(model, 8) < 1.1 * kept
    model.requires_grad_(False)
    assert tower_activations(model, 8) == 0

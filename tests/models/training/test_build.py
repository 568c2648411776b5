"""The models that the loop starts with: references next to an adapter, and the precision of references."""

from pathlib import Path
from typing import Any

import pytest
import torch

from models.learner.precision import autocast_rule
from models.method.learner import Learner
from models.parts.reference.moving_average import MovingAverage
from models.parts.reference.reset import HardReset, PreviousRound
from models.policies.weights import merged_weights
from models.recipes.load import load_recipe
from models.recipes.schema import Recipe
from models.training.build import build_learner
from tests.support.tiny_models import tiny_policy

RECIPES = Path(__file__).resolve().parents[3] / "recipes"
COMMON = ["policy.precision=float32", "policy.lora={rank: 2}"]


def built(reference: str, folder: Path) -> tuple[Learner, Recipe]:
    recipe = load_recipe(RECIPES / "arithmetic.yaml", [*COMMON, f"reference={{name: {reference}}}"])
    assert recipe.schedule is not None
    autocast = autocast_rule(recipe.policy.precision, folder)
    return build_learner(tiny_policy(torch.float32), recipe, recipe.schedule, autocast), recipe


@pytest.mark.parametrize("reference", ["moving_average", "hard_reset", "previous_round"])
def test_beside_an_adapter_a_reference_that_moves_holds_whole_weights_and_begins_as_the_policy(
    reference: str, tmp_path: Path
) -> None:
    learner, recipe = built(reference, tmp_path)
    assert learner.reference is not None and isinstance(recipe.reference, MovingAverage | HardReset | PreviousRound)
    held = dict(learner.reference.named_parameters())
    assert learner.adapter_off is None and not any("lora_" in name for name in held)
    assert not any(parameter.requires_grad for parameter in held.values())
    assert all(torch.equal(held[name], weight) for name, weight in merged_weights(learner.policy) if name in held)
    with torch.no_grad():
        for name, parameter in learner.policy.named_parameters():
            if "lora_B" in name:
                parameter.fill_(0.1)
    assert recipe.reference.follow(learner.reference, learner.policy, recipe.reference.every - 1)
    begun = tiny_policy(torch.float32).state_dict()
    assert any(not torch.equal(value, begun[name]) for name, value in held.items())
    assert held.keys() == dict(learner.moving["reference"].named_parameters()).keys()


def test_beside_an_adapter_a_frozen_reference_is_the_policy_without_it(tmp_path: Path) -> None:
    learner, _ = built("frozen", tmp_path)
    assert learner.reference is None and learner.adapter_off is not None


@pytest.mark.parametrize(
    ("settings", "dtype"),
    [
        (["reference={name: frozen}"], torch.bfloat16),
        (["reference={name: moving_average}"], torch.float32),
        (["rollouts={name: mixture}", "select={name: all}"], torch.float32),
    ],
)
def test_a_reference_that_is_nothing_but_read_holds_what_is_read(
    tmp_path: Path, settings: list[str], dtype: torch.dtype
) -> None:
    recipe = load_recipe(RECIPES / "arithmetic.yaml", ["policy.precision=bfloat16", *settings])
    assert recipe.schedule is not None
    autocast = autocast_rule(recipe.policy.precision, tmp_path)
    learner = build_learner(tiny_policy(torch.float32), recipe, recipe.schedule, autocast)
    reference: Any = learner.reference
    assert reference.model.layers[0].mlp.up_proj.weight.dtype == dtype
    policy: Any = learner.policy
    assert policy.model.layers[0].mlp.up_proj.weight.dtype == torch.float32
    assert ("reference" in learner.moving) == (settings == ["reference={name: moving_average}"])

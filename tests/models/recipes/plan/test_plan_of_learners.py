"""A plan for several learners counts the memory that each of them holds."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
import torch
from torch import Tensor, nn

from models.base.ranks import Ranks, own_part
from models.learner.optimiser import build_optimiser
from models.learner.sharding import shard
from models.policies.build import new_shapes
from models.recipes.load import load_recipe
from models.recipes.plan.configs import policy_config
from models.recipes.plan.footprint import Device, Footprint, footprint
from models.recipes.plan.rows import loop_row
from tests.support.rank_group import on_ranks

SIZE = (
    "policy.size={hidden: 72, layers: 3, heads: 4, key_value_heads: 2, feed_forward: 200, head: 18, positions: 512}",
)


def planned(learners: int, *more: str) -> Footprint:
    recipe = load_recipe("gsm8k", ["policy.precision=float32", *SIZE, f"placement.learners={learners}", *more])
    config, _ = policy_config(recipe)
    return footprint(recipe, config, loop_row(recipe, config, 8, Device("cpu", 10**9)), Device("cpu", 10**9), None)


def held(ranks: Ranks) -> tuple[int, int]:
    """Return the bytes of the weights and of the moments that a rank holds."""
    recipe = load_recipe("gsm8k", [*SIZE])
    config, _ = policy_config(recipe)
    with torch.device("cpu"):
        policy: nn.Module = new_shapes(config)
    optimiser = build_optimiser(policy, recipe.schedule.optimiser)  # type: ignore[union-attr]
    shard(policy, ranks, optimiser)
    for weight in policy.parameters():
        weight.grad = torch.zeros_like(weight)
    optimiser.step()
    moments = [value for state in optimiser.state.values() for name, value in state.items() if name != "step"]
    return _bytes(policy.parameters()), _bytes(moments)


def _bytes(tensors: Iterable[Tensor]) -> int:
    return sum(4 * own_part(tensor.detach()).numel() for tensor in tensors)


@pytest.mark.thorough
@pytest.mark.parametrize("learners", [2, 3])
def test_the_first_of_several_learners_holds_what_is_planned_and_the_others_no_more(learners: int) -> None:
    plan = planned(learners)
    sizes = on_ranks(learners, held)
    assert sizes[0] == (plan.weights, plan.optimiser) and max(sizes) == sizes[0]
    assert plan.gradients == plan.weights == plan.reference


@pytest.mark.rotating(of=6)
def test_more_learners_hold_less_each_and_put_the_same_together() -> None:
    alone, two, eight = planned(1), planned(2), planned(8)
    assert alone.put_together == 0 < two.put_together == eight.put_together
    assert alone.weights / 2 <= two.weights < 0.51 * alone.weights and eight.weights < 0.14 * alone.weights
    assert alone.engine > 0 == two.engine, "engines of several learners are placed"
    assert alone.parameters == two.parameters and two.put_together < 2 * alone.weights
    adapted = planned(2, "policy.lora={rank: 4}")
    assert adapted.put_together < two.put_together and adapted.optimiser < 0.1 * two.optimiser

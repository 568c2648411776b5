"""Skip analysis: costs against a model without the block, adapters in the least costly blocks, and their limits."""

import copy
from typing import Any

import pytest
import torch
from torch import nn

from models.base.errors import UserError
from models.policies.build import LoraSettings, with_adapter
from models.policies.skip_analysis import (
    _drawn_texts,
    _log_probs,
    adapted_modules,
    blocks_of,
    least_costly,
    removal_costs,
    without_block,
)
from tests.support.tiny_models import tiny_policy


def policy() -> Any:
    """Return a tiny policy in float64 with three blocks, of which the second adds hardly anything."""
    model: Any = tiny_policy()
    layers = model.model.layers
    while len(layers) < 3:
        layers.append(copy.deepcopy(layers[0]))
    model.config.num_hidden_layers = 3
    model.config.layer_types = ["full_attention"] * 3
    torch.manual_seed(3)
    with torch.no_grad():
        for number, layer in enumerate(layers):
            for name in (layer.self_attn.o_proj, layer.mlp.down_proj):
                name.weight.normal_(std=1e-4 if number == 1 else 0.4)
    return model.double().eval()


def test_the_cost_is_the_divergence_from_the_model_without_the_block() -> None:
    model = policy()
    texts = _drawn_texts(model, 0)
    whole = torch.log_softmax(model(input_ids=texts, use_cache=False).logits, -1)
    for number, cost in enumerate(removal_costs(model, 0)):
        shorter = copy.deepcopy(model)
        del shorter.model.layers[number]
        shorter.config.num_hidden_layers = 2
        rest = torch.log_softmax(shorter(input_ids=texts, use_cache=False).logits, -1)
        divergence = nn.functional.kl_div(rest, whole, reduction="none", log_target=True).sum(-1).mean()
        assert cost == pytest.approx(float(divergence.detach()), rel=1e-9)


def test_a_block_that_adds_nothing_costs_nothing_and_is_chosen_first() -> None:
    model = policy()
    layer = model.model.layers[1]
    nn.init.zeros_(layer.self_attn.o_proj.weight)
    nn.init.zeros_(layer.mlp.down_proj.weight)
    costs = removal_costs(model, 0)
    assert costs[1] == pytest.approx(0.0, abs=1e-12) and min(costs[0], costs[2]) > 1e-3
    assert least_costly(costs, 1) == (1,)


def test_the_least_costly_blocks_are_in_order_and_the_first_of_equal_ones() -> None:
    assert least_costly([0.3, 0.1, 0.3, 0.2], 2) == (1, 3)
    assert least_costly([0.3, 0.1, 0.3, 0.2], 3) == (0, 1, 3)
    assert least_costly([0.5, 0.5], 1) == (0,)


def test_only_the_chosen_blocks_have_adapters() -> None:
    adapted = with_adapter(policy(), LoraSettings(rank=2, blocks=1), seed=0)
    learning = [name for name, weight in adapted.named_parameters() if weight.requires_grad]
    assert learning and all(".layers.1." in name and "lora_" in name for name in learning)
    assert len(learning) == 14  # seven linear layers, two matrices each


def test_with_all_blocks_the_adapters_are_those_without_the_setting() -> None:
    plain, chosen = (with_adapter(policy(), LoraSettings(rank=2, blocks=count), seed=0) for count in (None, 3))
    first, other = dict(plain.named_parameters()), dict(chosen.named_parameters())
    assert first.keys() == other.keys()
    assert all(torch.equal(first[name], other[name]) for name in first)


def test_targets_still_select_layers() -> None:
    model = policy()
    assert adapted_modules(model, ["q_proj"], 1, 0) == ["model.layers.1.self_attn.q_proj"]
    assert adapted_modules(model, r".*\.(up|down)_proj", 1, 0) == [
        "model.layers.1.mlp.up_proj",
        "model.layers.1.mlp.down_proj",
    ]
    assert adapted_modules(model.to("meta"), ["q_proj"], 2, 0) == [
        "model.layers.0.self_attn.q_proj",
        "model.layers.1.self_attn.q_proj",
    ]


def test_the_analysis_repeats_and_leaves_model_and_random_state_as_they_were() -> None:
    model = policy().train()
    before, state = copy.deepcopy(model.state_dict()), torch.get_rng_state()
    assert removal_costs(model, 4) == removal_costs(model, 4)
    assert model.training and torch.equal(torch.get_rng_state(), state)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    texts = _drawn_texts(model.eval(), 0)
    whole = _log_probs(model, texts)
    with without_block(blocks_of(model)[1][0]):
        assert not torch.equal(_log_probs(model, texts), whole)
    assert torch.equal(_log_probs(model, texts), whole)


def test_too_many_blocks_and_targets_elsewhere_are_refused_in_a_line() -> None:
    with pytest.raises(UserError, match=r"policy\.lora\.blocks is 4, but the policy has 3 blocks; lower it"):
        adapted_modules(policy(), "all-linear", 4, 0)
    with pytest.raises(UserError, match=r"policy\.lora\.targets: none of them is in a block"):
        adapted_modules(policy(), ["lm_head"], 1, 0)

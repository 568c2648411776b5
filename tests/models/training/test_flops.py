"""The number of operations of an update, compared with a count by hand and with torch's counter."""

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode
from transformers import MistralConfig, MistralForCausalLM

from models.learner.packing import Sequences
from models.policies.build import LoraSettings, with_adapter
from models.training.flops import Group, forward_flops, groups_of, keys_seen, shapes_of, update_flops
from tests.support.device_here import DEVICE
from tests.support.tiny_models import scored, tiny_policy

GROUPS = [Group(3, (2, 1)), Group(1, (4,))]
"""There are 11 tokens, 7 of them in completions. The keys are 6 + (4 + 5) + 4 and 1 + (2 + 3 + 4 + 5), in total 34."""

# tiny_policy: hidden 64, 2 layers, 2 heads of 32, 1 key-value head, feed-forward 64, vocabulary 24.
LAYER = 64 * 64 + 2 * 64 * 32 + 64 * 64 + 3 * 64 * 64  # q; k and v; o; gate, up and down
HEAD = 24 * 64
ATTENTION = 2 * 4 * 64 * 34  # layers, operations, heads x size, keys


def test_an_update_by_hand() -> None:
    shapes = shapes_of(tiny_policy(torch.float32))
    assert (shapes.learning, shapes.frozen, shapes.head) == (2 * LAYER, 0, HEAD) and 2 * LAYER == 49152
    assert update_flops(shapes, GROUPS) == 6 * 49152 * 11 + 6 * HEAD * 7 + 3 * ATTENTION == 3_360_768
    assert forward_flops(shapes, GROUPS) == 3_360_768 / 3


def test_adapters_learn_and_the_frozen_matrices_have_no_gradient_of_their_own() -> None:
    shapes = shapes_of(with_adapter(tiny_policy(torch.float32), LoraSettings(rank=4), seed=0))
    adapters = 2 * 4 * (5 * (64 + 64) + 2 * (64 + 32))
    assert (shapes.learning, shapes.adapters, shapes.frozen) == (adapters, adapters, 49152)
    assert update_flops(shapes, GROUPS) == (6 * adapters + 4 * 49152) * 11 + 4 * HEAD * 7 + 3 * ATTENTION
    assert forward_flops(shapes, GROUPS, adapter_off=True) == 3_360_768 / 3
    assert forward_flops(shapes, GROUPS) == 3_360_768 / 3 + 2 * adapters * 11


def test_torch_counts_the_same_matrix_products() -> None:
    model = tiny_policy(torch.float32)
    with FlopCounterMode(display=False) as counted:
        hidden = model.model(input_ids=torch.tensor([[3, 4, 5, 6, 7]], device=DEVICE)).last_hidden_state
        model.lm_head(hidden[:, 2:4]).sum().backward()
    products = counted.get_flop_counts()["Global"][torch.ops.aten.mm]
    group = [Group(3, (2,))]
    attention = update_flops(shapes_of(model), group) - products
    assert attention == 3 * 2 * 4 * 64 * 15  # torch counts attention separately, without the causal mask


def test_a_shared_prompt_is_counted_once() -> None:
    shapes = shapes_of(tiny_policy(torch.float32))
    apart = update_flops(shapes, [Group(30, (2,))] * 16)
    assert update_flops(shapes, [Group(30, (2,) * 16)]) < apart / 4


@pytest.mark.parametrize("window", [None, 1, 3, 8, 50])
@pytest.mark.parametrize(("start", "length"), [(0, 5), (2, 4), (1, 3), (20, 7), (0, 0)])
def test_keys_are_those_behind_and_within_the_window(start: int, length: int, window: int | None) -> None:
    assert keys_seen(start, length, window) == sum(
        min(place + 1, window or place + 1) for place in range(start, start + length)
    )


def test_a_sliding_window_is_taken_from_the_model() -> None:
    config = MistralConfig(
        vocab_size=24,
        hidden_size=64,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        intermediate_size=64,
        sliding_window=3,
    )
    assert shapes_of(MistralForCausalLM(config)).attention == ((64, 3), (64, 3))


def test_groups_are_read_from_the_chosen_completions() -> None:
    sequences = Sequences([[3, 4, 5], [3, 4, 5], [6]], [[1, 2], [1], [1, 2, 3, 4]])
    assert groups_of(scored([0.0, 1.0, 2.0], [2, 1], sequences=sequences)) == GROUPS

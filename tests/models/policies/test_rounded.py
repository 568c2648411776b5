"""A model whose weights are rounded once: equal results under autocast, and half the memory for its matrices."""

import copy
from typing import Any

import pytest
import torch

from models.learner.all_completions import all_log_probs, all_states
from models.policies.rounded import round_once, rounded_layers
from tests.support.architectures import MODELS, built
from tests.support.tiny_models import SEQUENCES, tiny_policy


@pytest.mark.parametrize("name", MODELS)
def test_under_autocast_it_says_the_same_to_the_last_bit(name: str) -> None:
    plain = built(name, torch.float32).eval()
    rounded = copy.deepcopy(plain)
    round_once(rounded, torch.bfloat16)
    assert bool(rounded_layers(plain)) is (name != "gpt2")  # GPT-2's layers have a class of their own
    how: dict[str, Any] = {"autocast": torch.bfloat16, "token_budget": 64, "setting": "token_budget"}
    for read in (all_log_probs, all_states):
        pairs = zip(read(rounded, SEQUENCES, **how), read(plain, SEQUENCES, **how), strict=True)
        assert all(torch.equal(actual, expected) for actual, expected in pairs)


def test_matrices_take_half_and_embeddings_and_what_is_tied_to_them_stay() -> None:
    model = tiny_policy(torch.float32)
    round_once(model, torch.bfloat16)
    assert model.get_input_embeddings().weight.dtype == model.get_output_embeddings().weight.dtype == torch.float32
    assert model.get_input_embeddings().weight is model.get_output_embeddings().weight
    dtypes = {name.rsplit(".", 2)[-2]: value.dtype for name, value in model.named_parameters()}
    assert dtypes["q_proj"] == dtypes["down_proj"] == torch.bfloat16 and dtypes["norm"] == torch.float32

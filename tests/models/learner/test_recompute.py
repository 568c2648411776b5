"""Gradient checkpointing: the same gradient to the bit, less memory, and a model that is unchanged afterwards."""

import copy
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from models.base.errors import UserError
from models.learner.log_probs import completion_log_probs, plain_inner, use_packed_attention
from models.learner.recompute import can_recompute, recomputing
from models.policies.build import LoraSettings, with_adapter
from tests.support.tiny_models import SEQUENCES, tiny_policy


def gradients(model: nn.Module, on: bool, autocast: torch.dtype | None = None) -> dict[str, Tensor]:
    model.zero_grad(set_to_none=True)
    with recomputing(model, on):
        completion_log_probs(model, SEQUENCES, autocast=autocast)[0].sum().backward()
    return {name: value.grad.clone() for name, value in model.named_parameters() if value.grad is not None}


def kept_bytes(model: nn.Module, on: bool) -> int:
    """Return the bytes that the layers keep for the backward pass, without weights; each memory counts once."""
    seen: dict[int, int] = {}

    def note(tensor: Tensor) -> Tensor:
        seen[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor

    weights = {value.untyped_storage().data_ptr() for value in model.parameters()}
    with recomputing(model, on), torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
        completion_log_probs(model, SEQUENCES)
    return sum(size for place, size in seen.items() if place not in weights)


def policy(lora: bool) -> Any:
    model = tiny_policy(torch.float32)
    use_packed_attention(model)
    return with_adapter(model, LoraSettings(rank=2), seed=0) if lora else model


@pytest.mark.parametrize("lora", [False, True])
@pytest.mark.parametrize("autocast", [None, torch.bfloat16])
def test_the_gradient_is_the_same_to_the_bit(lora: bool, autocast: torch.dtype | None) -> None:
    model = policy(lora).eval()
    plain, again = gradients(model, False, autocast), gradients(model, True, autocast)
    assert plain and all(torch.equal(value, again[name]) for name, value in plain.items()) and len(plain) == len(again)


def test_less_is_kept_for_the_backward_pass() -> None:
    model = policy(lora=False).eval()
    assert kept_bytes(model, True) < 0.6 * kept_bytes(model, False)


def test_no_dropout_awakes_where_the_model_is_read_without() -> None:
    """Checkpointing needs layers in training mode, but the modules inside them must stay in eval mode."""
    model = policy(lora=False)
    model.config.attention_dropout = 0.9
    for module in model.modules():
        if hasattr(module, "attention_dropout"):
            module.attention_dropout = 0.9
    model.eval()
    plain = gradients(model, False)
    assert all(torch.equal(value, plain[name]) for name, value in gradients(model, True).items())


def test_afterwards_the_model_is_as_it_was_also_after_an_error() -> None:
    model = policy(lora=False).eval()
    model.model.layers[0].train()
    before = {name: module.training for name, module in model.named_modules()}
    with pytest.raises(ZeroDivisionError), recomputing(model):
        assert model.is_gradient_checkpointing
        raise ZeroDivisionError
    assert not model.is_gradient_checkpointing
    assert {name: module.training for name, module in model.named_modules()} == before


def test_a_model_that_knows_none_is_refused_with_the_key(monkeypatch: pytest.MonkeyPatch) -> None:
    model = copy.deepcopy(policy(lora=False))
    assert can_recompute(model)
    monkeypatch.setattr(type(plain_inner(model)), "supports_gradient_checkpointing", False)
    with pytest.raises(UserError, match="Qwen3ForCausalLM knows no gradient checkpointing"), recomputing(model):
        pass
    with recomputing(model, on=False):
        assert not can_recompute(model)

"""Packed rows with shared prompts equal plain forward passes: loss and every gradient, for each architecture."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from transformers import (
    BloomConfig,
    BloomForCausalLM,
    GptOssConfig,
    GptOssForCausalLM,
    LlamaConfig,
    LlamaForCausalLM,
    MambaConfig,
    MambaForCausalLM,
    PreTrainedModel,
)

from models.base.errors import UserError
from models.learner.distribution import Distribution
from models.learner.log_probs import completion_log_probs, use_packed_attention
from models.learner.packing import Sequences
from models.policies.build import LoraSettings, with_adapter
from tests.support.architectures import MODELS, ROUGH, SIZE, built, largest_gap, loss_and_gradients, plain
from tests.support.device_here import placed

IN_CHUNKS: dict[str, Any] = {**SIZE, "attention_chunk_size": 8}


def drawn(lengths: Sequence[int]) -> list[list[int]]:
    chance = torch.Generator().manual_seed(1)
    return [torch.randint(3, 61, (length,), generator=chance).tolist() for length in lengths]


PROMPTS = drawn([7, 11, 3])
COMPLETIONS = drawn([5, 8, 21, 1, 4, 6])
SHARED = Sequences([PROMPTS[i] for i in (0, 1, 0, 0, 2, 1)], COMPLETIONS)


@pytest.mark.parametrize("name", MODELS)
def test_shared_and_packed_equals_plain_in_float64(name: str) -> None:
    model = built(name, torch.float64)
    expected, its_gradients = loss_and_gradients(model, plain(model, SHARED, 0.7))
    gradients, own = loss_and_gradients(
        model, completion_log_probs(model, SHARED, distribution=Distribution(temperature=0.7))
    )
    torch.testing.assert_close(gradients, expected, rtol=1e-4 if name in ROUGH else 1e-10, atol=1e-12)
    # in most models transformers computes norms in float32, which also rounds their gradients
    assert largest_gap(own, its_gradients) < (1e-3 if name in ROUGH else 1e-5)


@pytest.mark.parametrize("name", MODELS)
def test_shared_and_packed_equals_plain_in_float32(name: str) -> None:
    model = built(name, torch.float32)
    expected, its_gradients = loss_and_gradients(model, plain(model, SHARED, 1.0))
    gradients, own = loss_and_gradients(model, completion_log_probs(model, SHARED))
    torch.testing.assert_close(gradients, expected, rtol=1e-5, atol=1e-6)
    assert largest_gap(own, its_gradients) < (1e-4 if name in ROUGH else 1e-5)


@pytest.mark.parametrize("name", ["llama", "qwen2", "qwen3", "mistral, window 5", "gemma"])
def test_with_adapters_shared_and_packed_equals_plain(name: str) -> None:
    model = with_adapter(built(name, torch.float64), LoraSettings(rank=4, alpha=8), seed=0)
    for parameter_name, parameter in model.named_parameters():
        if "lora_B" in parameter_name:
            nn.init.normal_(parameter, std=0.1)
    model = model.double()
    expected, its_gradients = loss_and_gradients(model, plain(model, SHARED, 1.0))
    gradients, own = loss_and_gradients(model, completion_log_probs(model, SHARED))
    torch.testing.assert_close(gradients, expected, rtol=1e-10, atol=1e-12)
    assert own.keys() == its_gradients.keys() and all("lora_" in key for key in own)
    assert largest_gap(own, its_gradients) < 1e-5


def test_adapters_on_the_output_projection_take_part() -> None:
    model = with_adapter(built("llama", torch.float64), LoraSettings(rank=4, alpha=8, targets=("lm_head",)), seed=0)
    for parameter_name, parameter in model.named_parameters():
        if "lora_B" in parameter_name:
            nn.init.normal_(parameter, std=0.1)
    model = model.double()
    expected, its_gradients = loss_and_gradients(model, plain(model, SHARED, 1.0))
    gradients, own = loss_and_gradients(model, completion_log_probs(model, SHARED))
    torch.testing.assert_close(gradients, expected, rtol=1e-10, atol=1e-12)
    assert own.keys() == its_gradients.keys() and largest_gap(own, its_gradients) < 1e-8


@pytest.mark.parametrize("name", ["llama", "qwen3"])
def test_the_reference_of_an_adapted_policy_is_the_base_model(name: str) -> None:
    base = built(name, torch.float64)
    expected, _ = completion_log_probs(base, SHARED)
    model: Any = with_adapter(base, LoraSettings(rank=4), seed=0).double()
    for parameter_name, parameter in model.named_parameters():
        if "lora_B" in parameter_name:
            nn.init.normal_(parameter, std=0.1)
    adapted, _ = completion_log_probs(model, SHARED)
    with model.disable_adapter():
        reference, _ = completion_log_probs(model, SHARED)
    assert torch.equal(reference, expected)
    assert float((adapted - expected).detach().abs().max()) > 1e-3


def test_a_model_that_reads_packed_rows_still_reads_ordinary_batches() -> None:
    model = built("mistral, window 5", torch.float64)
    ids = placed(torch.tensor([[5, 6, 7, 8, 9, 10, 11, 12], [0, 0, 0, 9, 8, 7, 6, 5]]))
    mask = (ids > 0).long()
    before = model(input_ids=ids, attention_mask=mask).logits
    use_packed_attention(model)
    torch.testing.assert_close(model(input_ids=ids, attention_mask=mask).logits, before, rtol=1e-10, atol=1e-10)


def test_what_is_saved_does_not_name_the_attention(tmp_path: Path) -> None:
    model = built("llama", torch.float32)
    use_packed_attention(model)
    model.save_pretrained(tmp_path)
    assert "packed" not in (tmp_path / "config.json").read_text()


@pytest.mark.parametrize(
    "model",
    [
        MambaForCausalLM(MambaConfig(vocab_size=61, hidden_size=32, num_hidden_layers=2)),
        BloomForCausalLM(BloomConfig(vocab_size=61, hidden_size=64, n_layer=2, n_head=4)),
        GptOssForCausalLM(
            GptOssConfig(**SIZE, num_local_experts=2, num_experts_per_tok=1, layer_types=["full_attention"] * 3)
        ),
        LlamaForCausalLM(LlamaConfig(**IN_CHUNKS)),
    ],
    ids=["mamba", "bloom", "attention sinks", "attention in chunks"],
)
def test_a_model_whose_attention_cannot_take_the_layout_is_refused(model: PreTrainedModel) -> None:
    with pytest.raises(UserError, match=f"{type(model).__name__} cannot read packed rows") as refused:
        completion_log_probs(model, SHARED)
    assert "\n" not in str(refused.value)


def test_attention_dropout_is_refused() -> None:
    model = LlamaForCausalLM(LlamaConfig(**SIZE, attention_dropout=0.1)).train()
    with pytest.raises(UserError, match="attention_dropout is not zero"):
        completion_log_probs(model, SHARED)

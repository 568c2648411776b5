"""One small model of each architecture that the packed learner is tested with."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn
from transformers import (
    CohereConfig,
    CohereForCausalLM,
    Gemma2Config,
    Gemma2ForCausalLM,
    Gemma3ForCausalLM,
    Gemma3TextConfig,
    GemmaConfig,
    GemmaForCausalLM,
    GPT2Config,
    GPT2LMHeadModel,
    GraniteConfig,
    GraniteForCausalLM,
    LlamaConfig,
    LlamaForCausalLM,
    MistralConfig,
    MistralForCausalLM,
    Olmo2Config,
    Olmo2ForCausalLM,
    Phi3Config,
    Phi3ForCausalLM,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
)

from models.learner.packing import Sequences
from tests.support.device_here import placed
from tests.support.tiny_models import gradients

SIZE: dict[str, Any] = {
    "vocab_size": 61,
    "hidden_size": 64,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "intermediate_size": 96,
    "max_position_embeddings": 128,
    "head_dim": 16,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
ROUGH = {"gemma2, window 6"}
"""Models whose attention rounds the softmax to float32 for every dtype of the weights."""
MODELS = {
    "llama": lambda: LlamaForCausalLM(LlamaConfig(**SIZE)),
    "qwen2": lambda: Qwen2ForCausalLM(Qwen2Config(**SIZE)),
    "qwen3": lambda: Qwen3ForCausalLM(Qwen3Config(**SIZE)),
    "mistral, window 5": lambda: MistralForCausalLM(MistralConfig(**SIZE, sliding_window=5)),
    "gemma": lambda: GemmaForCausalLM(GemmaConfig(**SIZE)),
    "gemma2, window 6": lambda: Gemma2ForCausalLM(Gemma2Config(**SIZE, query_pre_attn_scalar=16, sliding_window=6)),
    "gemma3, window 6": lambda: Gemma3ForCausalLM(Gemma3TextConfig(**SIZE, query_pre_attn_scalar=16, sliding_window=6)),
    "phi3": lambda: Phi3ForCausalLM(Phi3Config(**SIZE)),
    "olmo2": lambda: Olmo2ForCausalLM(Olmo2Config(**SIZE)),
    "cohere": lambda: CohereForCausalLM(CohereConfig(**SIZE, logit_scale=0.25)),
    "granite": lambda: GraniteForCausalLM(GraniteConfig(**SIZE, logits_scaling=8.0)),
    "gpt2": lambda: GPT2LMHeadModel(
        GPT2Config(
            vocab_size=61,
            n_embd=64,
            n_layer=2,
            n_head=4,
            n_positions=128,
            attn_pdrop=0.0,
            bos_token_id=1,
            eos_token_id=2,
        )
    ),
}


def built(name: str, dtype: torch.dtype) -> Any:
    torch.manual_seed(0)
    make: Any = MODELS[name]
    model = make().to(dtype).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim > 1:
                parameter.mul_(3.0)  # distributions far from uniform, so that the tests detect a wrong token
    return placed(model)


def plain(model: nn.Module, sequences: Sequences, temperature: float) -> tuple[Tensor, Tensor]:
    """Return log-probs and entropies by definition: one sequence at a time, with the log-softmax over all tokens."""
    log_probs, entropies = [], []
    for prompt, completion in zip(sequences.prompts, sequences.completions, strict=True):
        ids = placed(torch.tensor([[*prompt, *completion]]))
        logits = model(input_ids=ids, use_cache=False).logits[0, len(prompt) - 1 : -1]
        whole = torch.log_softmax(logits.to(torch.promote_types(logits.dtype, torch.float32)) / temperature, dim=-1)
        log_probs.append(whole.gather(1, ids[0, len(prompt) :, None]).squeeze(1))
        entropies.append(-(whole.exp() * whole).sum(1))
    return torch.cat(log_probs), torch.cat(entropies)


def loss_and_gradients(model: nn.Module, values: tuple[Tensor, Tensor]) -> tuple[Tensor, dict[str, Tensor]]:
    """Return a loss and its gradients. Log-prob and entropy of each token have weights of their own in the loss."""
    log_prob, entropy = values
    weight = torch.linspace(-1.0, 2.0, log_prob.numel(), dtype=torch.float64, device=log_prob.device)
    model.zero_grad()
    loss = (weight * log_prob.double() + weight.flip(0) * entropy.double()).sum() / log_prob.numel()
    loss.backward()
    return loss.detach(), gradients(model)


def largest_gap(actual: Mapping[str, Tensor], expected: Mapping[str, Tensor]) -> float:
    """Return the largest difference of any gradient, relative to the largest entry of the same gradient."""
    return max(
        float((actual[name] - expected[name]).abs().max() / expected[name].abs().max().clamp(min=1e-12))
        for name in expected
    )

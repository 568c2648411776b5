"""One small model of each architecture that the packed learner is proved on."""

from typing import Any

import torch
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
                parameter.mul_(3.0)  # distributions far from uniform, so that a wrong token shows
    return model

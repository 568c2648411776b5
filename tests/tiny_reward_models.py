"""A reward model of a few thousand weights, for tests that fit one."""

from typing import Any

import torch
from transformers import Qwen3Config, Qwen3ForSequenceClassification

SHAPE: dict[str, Any] = {
    "vocab_size": 20,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 1,
    "num_key_value_heads": 1,
    "head_dim": 32,
    "intermediate_size": 64,
    "max_position_embeddings": 64,
    "num_labels": 1,
    "pad_token_id": 0,
}


def tiny_reward_model(dtype: torch.dtype = torch.float32) -> Any:
    """The same weights at every call, on the CPU."""
    torch.manual_seed(0)
    config = Qwen3Config(**SHAPE)
    model: Any = Qwen3ForSequenceClassification(config)
    return model.to(dtype).eval()

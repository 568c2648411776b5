"""A reward model with about 21,000 weights, and pairs that it can learn, for tests that fit a reward model."""

import random
from typing import Any

import torch
from transformers import Qwen3Config, Qwen3ForSequenceClassification

from models.learner.optimiser import OptimiserSettings
from models.reward_models.fit import Pair
from tests.support.device_here import placed

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

FAST = OptimiserSettings(learning_rate=2e-3, warmup_steps=5)


def tiny_reward_model(dtype: torch.dtype = torch.float32) -> Any:
    """Make a reward model with the same weights at every call."""
    torch.manual_seed(0)
    config = Qwen3Config(**SHAPE)
    model: Any = Qwen3ForSequenceClassification(config)
    return placed(model.to(dtype)).eval()


def toy_pairs(count: int, seed: int) -> list[Pair]:
    """Make random pairs whose completions differ in the token before the end.

    The better completion repeats the prompt's last token there; the worse one has another token.
    """
    chance = random.Random(seed)
    pairs = []
    for _ in range(count):
        prompt = [chance.randint(4, 9) for _ in range(chance.randint(1, 2))]
        wrong = chance.choice([token for token in range(4, 10) if token != prompt[-1]])
        body = [chance.randint(10, 19) for _ in range(chance.randint(0, 2))]
        pairs.append(Pair(prompt, [*body, prompt[-1], 1], [*body, wrong, 1]))
    return pairs

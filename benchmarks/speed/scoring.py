"""Scoring a round's completions with a reward model: each different token once, against packed rows, in turns.

The shape of the main recipe: 64 prompts, 8 samples of each, 128 wide, 3 layers. Half of the samples are equal to
another one and most begin alike, as with a warm-started policy; the peer reads every completion, prompts shared.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable

import torch
from transformers import Qwen3Config, Qwen3ForSequenceClassification

from benchmarks.shared.alternate import REST
from benchmarks.shared.rows import Row, compare
from benchmarks.shared.settings import Settings
from models.learner.log_probs import hidden_width
from models.learner.packing import Sequences, cut_into_rows
from models.reward_models.model import score
from models.reward_models.scoring import score_all

VOCABULARY = 98
AT_LEAST = 10.0


def measure(settings: Settings, name: str) -> list[Row]:
    """Measure one row: wall seconds of a round, with processor seconds in the details."""
    torch.manual_seed(0)
    sequences = round_of(8 if settings.quick else 64, 8)
    config = Qwen3Config(
        vocab_size=VOCABULARY,
        hidden_size=128,
        num_hidden_layers=3,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=32,
        intermediate_size=384,
        max_position_embeddings=128,
        num_labels=1,
        pad_token_id=0,
    )
    model = Qwen3ForSequenceClassification(config).eval()

    @torch.no_grad()
    def packed() -> torch.Tensor:
        scores = torch.empty(len(sequences))
        for indices, row in cut_into_rows(sequences, 16384, width=hidden_width(model)):
            scores[indices] = score(model, row)
        return scores

    sides: dict[str, Callable[[], torch.Tensor]] = {"ours": lambda: score_all(model, sequences), "packed": packed}
    gap = float((sides["ours"]() - sides["packed"]()).abs().max())
    wall: dict[str, list[float]] = {side: [] for side in sides}
    cpu: dict[str, list[float]] = {side: [] for side in sides}
    for _ in range(settings.samples):
        for side, run in sides.items():
            time.sleep(REST)
            before, began = time.process_time(), time.perf_counter()
            run()
            wall[side].append(time.perf_counter() - began)
            cpu[side].append(time.process_time() - before)
    return [
        compare(
            f"scoring a round of {len(sequences)} completions with the reward model",
            wall["ours"],
            wall["packed"],
            "s",
            AT_LEAST,
            smaller_is_better=True,
            against="the same model reading packed rows, prompts shared",
            details={
                "completions": len(sequences),
                "different": len(sequences.once_each()[0]),
                "largest_gap": gap,
                "cpu_seconds": cpu,
            },
        )
    ]


def round_of(prompts: int, group: int) -> Sequences:
    """Draw samples that leave a common answer at some token or never; prompts have 9 to 20 tokens, answers 12 to 30."""
    chance = random.Random(0)
    pairs = []
    for _ in range(prompts):
        prompt = _tokens(chance, chance.randint(9, 20))
        likeliest = _tokens(chance, chance.randint(12, 30))
        for _ in range(group):
            parts = chance.randrange(2 * len(likeliest))
            kept = likeliest[:parts]
            pairs.append((prompt, kept + _tokens(chance, len(likeliest) - len(kept))))
    return Sequences([prompt for prompt, _ in pairs], [answer for _, answer in pairs])


def _tokens(chance: random.Random, count: int) -> list[int]:
    return [chance.randrange(3, VOCABULARY) for _ in range(count)]

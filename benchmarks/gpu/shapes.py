"""The models and the batches that `benchmarks.gpu` measures: random weights in shapes of Qwen3, lengths of updates."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from transformers import PreTrainedModel, Qwen3ForCausalLM

from benchmarks.shared.batches import Batch, tail
from models.policies.build import SizeSettings, config_of


def shape(hidden: int, layers: int, heads: int, key_value_heads: int, head: int, feed_forward: int) -> SizeSettings:
    """Make the shape of a model, in the order in which its page gives the numbers."""
    return SizeSettings(
        hidden=hidden, layers=layers, heads=heads, key_value_heads=key_value_heads, head=head, feed_forward=feed_forward
    )


@dataclass(frozen=True)
class Size:
    """Published sizes of a Qwen3; embeddings tied."""

    name: str
    """Name by which a cell is chosen."""
    title: str
    """Name in the table."""
    shape: SizeSettings
    vocabulary: int = 151_936


@dataclass(frozen=True)
class Packed(Batch):
    """One update, and the rows that ours packs it into."""

    budget: int
    """Most tokens of a packed row."""
    name: str
    """Name by which a cell is chosen."""
    what: str
    """Name in the table."""

    @property
    def longest(self) -> int:
        """Positions that a model must have for a row, though none of its sequences is as long."""
        return max(32_768, self.budget)


SIZES = (
    Size("0.6B", "Qwen3-0.6B", shape(1024, 28, 16, 8, 128, 3072)),
    Size("1.7B", "Qwen3-1.7B", shape(2048, 28, 16, 8, 128, 6144)),
)
TINY_SIZES = (
    Size("0.6B", "tiny", shape(64, 2, 2, 1, 32, 128), 512),
    Size("1.7B", "tiny, wider", shape(64, 2, 4, 2, 32, 192), 512),
)

ROWS = (
    Packed(512, 8, (448,) * 64, 4096, "4k", "rows of 4,096"),
    Packed(2048, 8, (1792,) * 16, 16384, "16k", "rows of 16,384"),
)
OTHERS = (
    Packed(256, 16, (256,) * 96, 16384, "short-prompt", "prompt 256, 16 completions of 256"),
    Packed(64, 16, tail(64, shortest=48, longest=4096), 16384, "tail", "prompt 64, 16 completions of 48 to 4,096"),
    Packed(4096, 8, (512,) * 16, 16384, "long-prompt", "prompt 4,096, 8 completions of 512"),
)
UNBROKEN = Packed(1, 1, (16_383,) * 2, 16384, "unbroken", "2 unbroken rows of 16,384")
"""Each row is one sequence, of which all but the first token carries loss."""
TINY_ROWS = (
    Packed(16, 8, (6,) * 16, 64, "4k", "rows of 64"),
    Packed(32, 8, (12,) * 8, 128, "16k", "rows of 128"),
)
TINY_OTHERS = (
    Packed(8, 4, (8,) * 16, 128, "short-prompt", "prompt 8, 4 completions of 8"),
    Packed(4, 4, tail(16, shortest=3, longest=64), 128, "tail", "prompt 4, 4 completions of 3 to 64"),
    Packed(48, 4, (8,) * 8, 128, "long-prompt", "prompt 48, 4 completions of 8"),
)
TINY_UNBROKEN = Packed(1, 1, (127,) * 2, 128, "unbroken", "2 unbroken rows of 128")


def label_of(size: Size, what: str) -> str:
    """Return the beginning of a row's name in the table."""
    return f"{size.title}, {what}"


def new_model(size: Size, longest: int, device: torch.device) -> PreTrainedModel:
    """Make random float32 weights in the published shape, the same at every call.

    Args:
        longest: positions that it has.
        device: they are made there.
    """
    config = config_of(replace(size.shape, positions=longest), size.vocabulary, pad=0, end=1)
    torch.manual_seed(0)
    with device:
        model: PreTrainedModel = Qwen3ForCausalLM(config)
    return model

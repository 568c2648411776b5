"""The tokenizer of a policy without a base model, fitted to the texts of its data."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from models.datasets.distinct_texts import DistinctTexts
from models.datasets.schema import Kind
from models.policies.vision import VisionSettings
from models.text.tokenizer import MOST_TEXTS, TokenizerSettings, train_tokenizer

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast


def fitted_tokenizer(
    folder: Path, settings: TokenizerSettings, vision: VisionSettings | None = None
) -> PreTrainedTokenizerFast:
    """Train the tokenizer of a policy that is trained on `folder` and has no base model.

    Args:
        vision: vision tower of the policy; None: it reads text alone.

    Raises:
        UserError: see `models.text.tokenizer.train_tokenizer`.
    """
    return train_tokenizer(training_texts(folder, settings), settings, vision.processor() if vision else None)


def training_texts(folder: Path, tokenizer: TokenizerSettings) -> Iterable[str]:
    """Return the texts of the data in `folder`, each once: prompts, demonstrations, both sides of preferences.

    A word tokenizer gets all texts. A byte tokenizer gets `MOST_TEXTS` at most, selected by their hashes.
    """
    columns: dict[Kind, tuple[str, ...]] = {
        "problems": ("prompt",),
        "demonstrations": ("prompt", "completion"),
        "preferences": ("prompt", "chosen", "rejected"),
    }
    return DistinctTexts(folder, columns, most=MOST_TEXTS if tokenizer.kind == "bytes" else None)

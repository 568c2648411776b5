"""The tokenizer of a policy that begins from no base, fitted to the texts that it will meet."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from models.datasets.distinct_texts import DistinctTexts
from models.datasets.schema import Kind
from models.text.tokenizer import MOST_TEXTS, TokenizerSettings, train_tokenizer

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast


def fitted_tokenizer(folder: Path, settings: TokenizerSettings) -> PreTrainedTokenizerFast:
    """The tokenizer of a policy that is trained on `folder` and begins from no base.

    Raises:
        UserError: see `models.text.tokenizer.train_tokenizer`.
    """
    return train_tokenizer(training_texts(folder, settings), settings)


def training_texts(folder: Path, tokenizer: TokenizerSettings) -> Iterable[str]:
    """The texts that a policy trained on `folder` meets, each once: prompts, demonstrations, both sides of preferences.

    All where each word is a token; of more than `MOST_TEXTS` a part, which their hashes choose, where bytes are.
    """
    columns: dict[Kind, tuple[str, ...]] = {
        "problems": ("prompt",),
        "demonstrations": ("prompt", "completion"),
        "preferences": ("prompt", "chosen", "rejected"),
    }
    return DistinctTexts(folder, columns, most=MOST_TEXTS if tokenizer.kind == "bytes" else None)

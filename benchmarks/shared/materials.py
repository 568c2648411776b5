"""Inputs of both sides: the same model, the same tokenizer, the same prompts and answers."""

from __future__ import annotations

import random
import tempfile
from collections.abc import Sequence
from pathlib import Path

import torch
from torch import nn
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from models.learner.precision import autocast_of, fastest_precision
from models.policies.folder import save_model_folder
from models.text.tokenizer import TokenizerSettings, train_tokenizer

VOCABULARY = 2048
SPECIALS = 3
"""Number of special tokens, <pad>, <end> and <unk>, which come first."""


def word_tokenizer(vocabulary: int = VOCABULARY) -> PreTrainedTokenizerFast:
    """Make a tokenizer with one token a word: ids above the special ones give a text that is read back as the same
    ids."""
    words = " ".join(f"w{number:06d}" for number in range(vocabulary - SPECIALS))
    return train_tokenizer([words], TokenizerSettings(kind="words", vocabulary=vocabulary))


def llama(
    *,
    hidden: int = 256,
    layers: int = 4,
    heads: int = 4,
    vocabulary: int = VOCABULARY,
    positions: int = 2048,
    seed: int = 0,
) -> LlamaForCausalLM:
    """Make a Llama with random weights that never draws its end token, so that every completion has the same length.

    The first channel of the residual stream is held at one, and only the end token's logit reads it, at a negative
    weight. So both sides need no setting that switches the end off, and have no cost for one.
    """
    torch.manual_seed(seed)
    config = LlamaConfig(
        vocab_size=vocabulary,
        hidden_size=hidden,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=heads,
        intermediate_size=hidden * 11 // 4,
        max_position_embeddings=positions,
        tie_word_embeddings=False,
        pad_token_id=0,
        eos_token_id=1,
        bos_token_id=None,
        dtype="float32",
    )
    model = LlamaForCausalLM(config)
    with torch.no_grad():
        model.model.embed_tokens.weight[:, 0] = 1.0
        model.lm_head.weight[:, 0] = 0.0
        model.lm_head.weight[1, 0] = -2.0  # about -30 before the softmax
        for layer in model.model.layers:
            layer.self_attn.o_proj.weight[0] = 0.0
            layer.mlp.down_proj.weight[0] = 0.0
    return model


def save(model: LlamaForCausalLM, tokenizer: PreTrainedTokenizerFast, folder: Path) -> Path:
    """Save both in one model folder, which both sides load."""
    save_model_folder(model, tokenizer, folder)
    return folder


def token_lists(count: int, length: int, *, seed: int, vocabulary: int = VOCABULARY) -> list[list[int]]:
    """Draw `count` random lists of `length` ordinary token ids."""
    draw = random.Random(seed)
    return [[draw.randrange(SPECIALS, vocabulary) for _ in range(length)] for _ in range(count)]


def texts(tokenizer: PreTrainedTokenizerFast, ids: Sequence[Sequence[int]]) -> list[str]:
    """Return texts that are read back as `ids`."""
    return [" ".join(tokenizer.convert_ids_to_tokens(list(row))) for row in ids]


def learner_precision(model: nn.Module) -> torch.dtype | None:
    """Return the precision that the pipeline's short measurement chooses for this model, here and now."""
    with tempfile.TemporaryDirectory() as nothing_kept:
        return autocast_of(fastest_precision(model, Path(nothing_kept)))

"""Disk cache of the log-probs under a frozen reference, keyed by a hash of their inputs.

An offline method reads the same completions again and again against the same reference. The file's name is a hash of
the reference's weights, the distribution, the precision and the tokens, so that nothing stale can be read.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from models.base.atomic_write import replace_file
from models.base.ranks import whole
from models.learner.all_completions import all_log_probs
from models.learner.distribution import MODEL_DISTRIBUTION, Distribution
from models.learner.log_probs import plain_inner
from models.learner.packing import Sequences
from models.learner.whole_weights import ranks_of

_LOG = logging.getLogger("rewardflow.learner")


@torch.no_grad()
def cached_reference_log_probs(
    folder: Path,
    reference: nn.Module,
    sequences: Sequences,
    *,
    distribution: Distribution = MODEL_DISTRIBUTION,
    autocast: torch.dtype | None = None,
    token_budget: int = 16384,
    setting: str = "token_budget",
) -> list[Tensor]:
    """Return the cached log-probs of all completions, [completions] tensors of [tokens of it], nats, on the CPU.

    They are computed if the cache does not hold them.

    Args:
        folder: folder of the cache, created if missing. A broken file is replaced.
        reference: a causal language model; its device and its mode are not changed.
        sequences: all prompts and completions of the data set.
        distribution: the distribution over tokens.
        autocast: precision of the matrix products.
        token_budget: tokens of one packed row; memory only.
        setting: key of the budget in the recipe, for the error.

    Raises:
        UserError: the budget is smaller than one row.
    """
    config = plain_inner(reference).config.to_json_string()  # the same weights may be read in other ways
    parts = (distribution, str(autocast), config, weights_hash(reference), tokens_hash(sequences))
    key = hashlib.sha256(repr(parts).encode())
    file = folder / f"{key.hexdigest()[:32]}.safetensors"
    lengths = [len(completion) for completion in sequences.completions]
    ranks = ranks_of(reference)
    kept = ranks.from_first(lambda: _read(file, sum(lengths)))
    if kept is None:
        rows = all_log_probs(
            reference,
            sequences,
            distribution=distribution,
            autocast=autocast,
            token_budget=token_budget,
            setting=setting,
        )
        kept = torch.cat([row.cpu() for row in rows] or [torch.empty(0)])
        ranks.from_first(partial(_write, file, kept))
    return list(kept.split(lengths))


def _write(file: Path, log_probs: Tensor) -> None:
    with replace_file(file) as partial_file:
        save_file({"log_probs": log_probs}, str(partial_file))


def _read(file: Path, tokens: int) -> Tensor | None:
    if not file.is_file():
        return None
    try:
        kept = load_file(str(file))["log_probs"]
    except (OSError, SafetensorError, KeyError) as error:
        _LOG.warning("%s is broken (%s); the reference's log-probs are computed again", file, error)
        return None
    return kept if kept.numel() == tokens else None


def weights_hash(model: nn.Module) -> str:
    """Return the SHA-256 over the names, shapes, types and values of a model's weights."""
    total = hashlib.sha256()
    for name, tensor in sorted(model.state_dict().items()):
        total.update(f"{name}{tuple(tensor.shape)}{tensor.dtype}".encode())
        total.update(whole(tensor.detach()).cpu().contiguous().view(torch.uint8).numpy().tobytes())
    return total.hexdigest()


def tokens_hash(sequences: Sequences) -> str:
    """Return the SHA-256 over the tokens of prompts and completions, including their boundaries."""
    total = hashlib.sha256()
    for rows in (sequences.prompts, sequences.completions):
        total.update(_bytes([len(row) for row in rows]))
        for row in rows:
            total.update(_bytes(row))
    return total.hexdigest()


def _bytes(values: Sequence[int]) -> bytes:
    return torch.tensor(list(values), dtype=torch.int64).numpy().tobytes()

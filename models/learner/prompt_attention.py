"""The attention that completions pay to the tokens of their prompts, read by the architecture's own definition.

Packed attention computes no weights of attention. They are therefore read from plain forward passes with the
implementation `eager`, which is set for these passes alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from models.base.errors import UserError
from models.learner.eval_mode import in_eval_mode
from models.learner.log_probs import plain_inner
from models.learner.packing import PerToken, Sequences
from models.learner.whole_weights import with_whole_weights


def attention_to_prompts(
    model: nn.Module,
    sequences: Sequences,
    *,
    counted: PerToken | None = None,
    autocast: torch.dtype | None = None,
    token_budget: int = 16384,
) -> list[Tensor]:
    """Compute the mean weight of attention of each completion on each token of its prompt, without gradient.

    The mean is over layers, heads, and the places that predict the counted tokens. The weights of one place
    sum to one over the tokens up to it, those of the completion included.

    Args:
        model: a causal language model; its implementation of attention is restored afterwards.
        sequences: prompts and completions, [completions], none of them empty.
        counted: mask of the tokens that count, at least one of each completion, [completions] tensors of [tokens of
            it], bool; None: all.
        autocast: dtype of the matrix products, None for that of the weights.
        token_budget: largest number of tokens of a forward pass, with padding; memory only. One sequence may exceed it.

    Returns:
        [completions] tensors of [prompt tokens], float64, on the CPU.

    Raises:
        UserError: the model cannot be read with eager attention.
    """
    lengths = [len(row) + len(rest) for row, rest in zip(sequences.prompts, sequences.completions, strict=True)]
    read: dict[int, Tensor] = {}
    with in_eval_mode(model), _eager(model), torch.no_grad():
        for batch in _batches(lengths, token_budget):
            ids = [[*sequences.prompts[place], *sequences.completions[place]] for place in batch]
            weights = with_whole_weights(model, lambda ids=ids: _weights(model, ids, autocast))  # type: ignore[misc]
            for row, place in enumerate(batch):
                first, length = len(sequences.prompts[place]), lengths[place]
                rows = weights[row, first - 1 : length - 1, :first].cpu()
                read[place] = (rows if counted is None else rows[counted[place]]).mean(0)
    return [read[place] for place in range(len(lengths))]


def _weights(model: nn.Module, rows: Sequence[Sequence[int]], autocast: torch.dtype | None) -> Tensor:
    """Return the attention of padded rows, mean over layers and heads, [rows, tokens, tokens], float64."""
    place, widest = next(model.parameters()).device, max(map(len, rows))
    ids = torch.tensor([[*row, *[row[-1]] * (widest - len(row))] for row in rows], device=place)
    mask = torch.tensor([[1] * len(row) + [0] * (widest - len(row)) for row in rows], device=place)
    inner: Any = plain_inner(model)
    with torch.autocast(place.type, dtype=autocast or torch.bfloat16, enabled=autocast is not None):
        output = inner(input_ids=ids, attention_mask=mask, use_cache=False, output_attentions=True)
    layers = [layer for layer in output.attentions or () if layer is not None]
    if not layers:
        raise UserError(f"{type(inner).__name__} returns no weights of attention; use another architecture")
    total = torch.zeros(len(rows), widest, widest, dtype=torch.float64, device=place)
    for layer in layers:
        total += layer.double().mean(1)
    return total / len(layers)


def _batches(lengths: Sequence[int], budget: int) -> Iterator[list[int]]:
    """Iterate over the places of sequences in batches of at most `budget` tokens with padding, the shortest first."""
    batch: list[int] = []
    for place in sorted(range(len(lengths)), key=lengths.__getitem__):
        if batch and (len(batch) + 1) * lengths[place] > budget:
            yield batch
            batch = []
        batch.append(place)
    if batch:
        yield batch


@contextmanager
def _eager(model: nn.Module) -> Iterator[None]:
    """Let the model attend with the implementation `eager`, and restore the former one afterwards."""
    inner = plain_inner(model)
    before = inner.config.get_text_config()._attn_implementation
    if not inner._can_set_attn_implementation():
        raise UserError(f"{type(inner).__name__} has no eager attention that returns its weights")
    inner.set_attn_implementation("eager")
    try:
        yield
    finally:
        inner.set_attn_implementation(before)

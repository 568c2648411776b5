"""Log-probabilities of completion tokens, without ever holding tokens x vocabulary for a whole batch.

The backbone runs over the sequences; only the hidden states that predict completion tokens go through the
output projection, in chunks that are recomputed in the backward pass.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint
from transformers import PreTrainedModel

from models.learner.batch import pad_right

CHUNK_ELEMENTS = 2**24
"""Largest tokens x vocabulary that one chunk of the projection holds, in numbers."""


@dataclass(frozen=True)
class Sequences:
    """Prompts and their completions as token ids, [completions] lists each; no completion is empty."""

    prompts: Sequence[Sequence[int]]
    completions: Sequence[Sequence[int]]

    def __len__(self) -> int:
        return len(self.prompts)

    @property
    def lengths(self) -> list[int]:
        """Tokens of prompt and completion together, [completions]."""
        return [
            len(prompt) + len(completion) for prompt, completion in zip(self.prompts, self.completions, strict=True)
        ]

    def take(self, indices: Sequence[int]) -> Sequences:
        """The sequences at `indices`, in that order."""
        return Sequences([self.prompts[i] for i in indices], [self.completions[i] for i in indices])


def backbone_and_head(model: nn.Module) -> tuple[nn.Module, nn.Module]:
    """The part of a causal model that makes hidden states, and its output projection (adapters included)."""
    adapted: Any = model
    inner: PreTrainedModel = adapted.get_base_model() if hasattr(model, "get_base_model") else adapted
    backbone: nn.Module = inner.base_model
    head: nn.Module = inner.get_output_embeddings()
    return backbone, head


def completion_log_probs(
    model: nn.Module, sequences: Sequences, *, temperature: float = 1.0, autocast: torch.dtype | None = None
) -> tuple[Tensor, Tensor]:
    """Log-prob of every completion token given what stands before it, and the entropy of its distribution.

    Args:
        model: a causal language model; gradient flows where it is enabled.
        sequences: prompts and completions, [completions].
        temperature: logits are divided by it, as the engine does when it samples.
        autocast: dtype of the matrix products, None for float32. The log-softmax is float32 always.

    Returns:
        Log-probs and entropies, [tokens] each, in nats, completion after completion; the entropy without gradient.
    """
    backbone, head = backbone_and_head(model)
    place = next(model.parameters()).device
    joined = [
        [*prompt, *completion] for prompt, completion in zip(sequences.prompts, sequences.completions, strict=True)
    ]
    batch = pad_right(joined, pad_id=0, device=place)
    rows = [row for row, completion in enumerate(sequences.completions) for _ in completion]
    columns = [
        len(prompt) - 1 + offset
        for prompt, completion in zip(sequences.prompts, sequences.completions, strict=True)
        for offset in range(len(completion))
    ]
    targets = torch.tensor([token for completion in sequences.completions for token in completion], device=place)
    with torch.autocast(place.type, dtype=autocast or torch.bfloat16, enabled=autocast is not None):
        hidden = backbone(input_ids=batch.ids, attention_mask=None, use_cache=False).last_hidden_state
        predicting = hidden[torch.tensor(rows, device=place), torch.tensor(columns, device=place)]
        return chunked_log_probs(predicting, head, targets, temperature)


def chunked_log_probs(
    hidden: Tensor, head: nn.Module, targets: Tensor, temperature: float = 1.0
) -> tuple[Tensor, Tensor]:
    """Log-prob of `targets` and entropy, chunk by chunk over tokens.

    Args:
        hidden: states that predict the targets, [tokens, hidden].
        head: the output projection, hidden -> vocabulary.
        targets: token ids, [tokens].
        temperature: divides the logits.

    Returns:
        Log-probs (with gradient) and entropies (without), [tokens] each, float32 or the dtype of `hidden` if wider.
    """
    vocabulary = int(next(head.parameters()).shape[0])
    size = max(1, CHUNK_ELEMENTS // vocabulary)
    if hidden.shape[0] <= size:
        return _log_probs(hidden, targets, head, temperature)
    log_probs, entropies = [], []
    for states, wanted in zip(hidden.split(size), targets.split(size), strict=True):
        log_prob, entropy = checkpoint(_log_probs, states, wanted, head, temperature, use_reentrant=False)
        log_probs.append(log_prob)
        entropies.append(entropy)
    return torch.cat(log_probs), torch.cat(entropies)


def _log_probs(hidden: Tensor, targets: Tensor, head: nn.Module, temperature: float) -> tuple[Tensor, Tensor]:
    logits = head(hidden)
    wide = torch.promote_types(logits.dtype, torch.float32)
    log_softmax = functional.log_softmax(logits.to(wide) / temperature, dim=-1)
    with torch.no_grad():
        entropy = -(log_softmax.exp() * log_softmax).sum(-1)
    return log_softmax.gather(-1, targets[:, None]).squeeze(-1), entropy

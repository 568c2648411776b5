"""The plain way to take a GRPO step's update: completions padded to the longest, each with its own copy of its prompt.

The model's own forward pass (torch's fused attention), logits of the completions' places alone, a log-softmax over
them, autograd for the rest; the same objective, precision and optimiser as ours. Prompts are padded on the left and
completions on the right, as in TRL, so that completions begin side by side. It runs where the model is.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn.utils import clip_grad_norm_
from transformers import PreTrainedModel

from models.learner.upload import to_device

Pairs = Sequence[tuple[Sequence[int], Sequence[int]]]
"""Prompts with their completions, as token ids."""


class PaddedLoop:
    """Updates of one model."""

    def __init__(
        self, model: PreTrainedModel, optimiser: torch.optim.Optimizer, autocast: torch.dtype | None, rows: int
    ) -> None:
        """Store the arguments; nothing is computed.

        Args:
            model: learns, in place.
            optimiser: optimiser of its weights.
            autocast: dtype of the matrix products; None for that of the weights.
            rows: completions that are read in parallel; it affects memory and speed alone.
        """
        self._model, self._optimiser, self._autocast, self._rows = model, optimiser, autocast, rows

    def update(self, pairs: Pairs, advantage: Sequence[float]) -> float:
        """Take one optimiser step. Returns the loss: of GRPO's first step on a batch, a mean over tokens, without KL.

        Args:
            pairs: [completions].
            advantage: advantage of each completion, [completions].
        """
        tokens = sum(len(completion) for _, completion in pairs)
        place = self._model.device
        total, worths = torch.zeros((), device=place), to_device(torch.tensor(advantage, dtype=torch.float64), place)
        for first in range(0, len(pairs), self._rows):
            cut = slice(first, first + self._rows)
            log_probs, real = self._log_probs(pairs[cut])
            ratio = torch.exp(log_probs - log_probs.detach())
            worth = worths[cut, None].to(ratio.dtype)
            gain = torch.minimum(ratio * worth, ratio.clamp(0.8, 1.2) * worth)
            loss = -(gain * real).sum() / tokens
            loss.backward()  # type: ignore[no-untyped-call]
            total = total + loss.detach()  # read once, at the end: no micro-batch waits for the device
        clip_grad_norm_(self._model.parameters(), 1.0)
        self._optimiser.step()
        self._optimiser.zero_grad(set_to_none=True)
        return float(total)

    def _log_probs(self, pairs: Pairs) -> tuple[Tensor, Tensor]:
        """Compute log-probs of the completions' tokens, and which places hold one, [rows, longest completion] each."""
        before = max(len(prompt) for prompt, _ in pairs)
        after = max(len(completion) for _, completion in pairs)
        ids = torch.zeros(len(pairs), before + after, dtype=torch.int64)
        mask = torch.zeros_like(ids)
        for row, (prompt, completion) in enumerate(pairs):
            here = slice(before - len(prompt), before + len(completion))
            ids[row, here] = torch.tensor([*prompt, *completion])
            mask[row, here] = 1
        place = self._model.device
        ids, mask = to_device(ids, place), to_device(mask, place)
        places = (mask.cumsum(1) - 1).clamp(min=0)
        with torch.autocast(place.type, dtype=self._autocast or torch.bfloat16, enabled=self._autocast is not None):
            logits = self._model(
                input_ids=ids, attention_mask=mask, position_ids=places, use_cache=False, logits_to_keep=after + 1
            ).logits[:, :-1]
        log_probs = torch.log_softmax(logits.float(), dim=-1)
        chosen = log_probs.gather(-1, ids[:, before:, None]).squeeze(-1)
        return chosen, mask[:, before:].to(chosen.dtype)

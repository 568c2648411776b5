"""A number computed from the policy's whole next-token distribution, at every token that it wrote."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from models.learner.distribution import Distribution
from models.learner.fused_log_probs import next_token_log_probs
from models.learner.log_probs import completion_states, output_head
from models.learner.packing import Sequences
from models.method.resources import RunResources
from models.method.rollout import Rollout
from models.parts.shared.written_tokens import written_rows

BLOCK = 1024
"""Tokens whose whole distributions are in memory at a time."""


def at_written_tokens(
    resources: RunResources, rollouts: Sequence[Rollout], distribution: Distribution, number: Callable[[Tensor], Tensor]
) -> list[Tensor]:
    """Apply `number` to the policy's distribution before each written token, [completions] tensors of [written of it].

    Args:
        distribution: temperature, top-p and top-k that the probabilities are read with.
        number: function of log-probs over the vocabulary, [tokens, vocabulary] -> [tokens].
    """
    learner = resources.learner
    head = output_head(learner.policy)

    def read(row: Sequences, indices: Sequence[int]) -> Tensor:
        states, _ = completion_states(learner.policy, row, learner.autocast)
        return torch.cat([number(next_token_log_probs(block, head, distribution)) for block in states.split(BLOCK)])

    return written_rows(resources.readings.each(rollouts, read), rollouts)

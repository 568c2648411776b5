"""Tokens of an episode that the policy wrote: sums, means and discounts run over these alone.

Between two turns the environment writes; these tokens count neither as time nor for rewards or explanations.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from models.learner.packing import PerToken
from models.method.rollout import Rollout


def written_rows(rows: PerToken, rollouts: Sequence[Rollout]) -> list[Tensor]:
    """Return the values at the policy's own tokens, [completions] tensors of [tokens of it] -> of [written of it]."""
    return [
        row[torch.tensor(rollout.written, device=row.device)] if rollout.episode.turns else row
        for row, rollout in zip(rows, rollouts, strict=True)
    ]


def spread_rows(rows: PerToken, rollouts: Sequence[Rollout]) -> list[Tensor]:
    """Put the values of the tokens that the policy wrote in their places, with zeros elsewhere.

    The shape changes from [completions] tensors of [written of it] to [completions] tensors of [tokens of it].
    """
    spread = []
    for row, rollout in zip(rows, rollouts, strict=True):
        if rollout.episode.turns:
            whole = row.new_zeros(len(rollout.completion))
            whole[torch.tensor(rollout.written, device=row.device)] = row
            row = whole
        spread.append(row)
    return spread

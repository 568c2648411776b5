"""Tokens that the policy wrote, out of episodes: what is summed, averaged or discounted goes over these alone.

Between two turns the environment speaks; time does not pass there, nothing is earned and nothing is to be explained.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from models.loop.rollout import Rollout


def written_rows(rows: Sequence[Tensor], rollouts: Sequence[Rollout]) -> list[Tensor]:
    """Values at the tokens that the policy wrote, [completions] tensors of [tokens of it] -> of [written of it]."""
    return [
        row[torch.tensor(rollout.written, device=row.device)] if rollout.turns else row
        for row, rollout in zip(rows, rollouts, strict=True)
    ]


def spread_rows(rows: Sequence[Tensor], rollouts: Sequence[Rollout]) -> list[Tensor]:
    """Values of the tokens that the policy wrote in their places, zero elsewhere, [completions] tensors of [written of
    it] -> of [tokens of it]."""
    spread = []
    for row, rollout in zip(rows, rollouts, strict=True):
        if rollout.turns:
            whole = row.new_zeros(len(rollout.completion))
            whole[torch.tensor(rollout.written, device=row.device)] = row
            row = whole
        spread.append(row)
    return spread

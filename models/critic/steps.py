"""Where the steps of a completion begin: a step ends with the token whose text holds a mark, such as a line break."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor


def step_starts(pieces: Sequence[str], marks: Sequence[str]) -> Tensor:
    """Which tokens begin a step, [tokens], bool; the first one always does.

    Args:
        pieces: text of each token, [tokens].
        marks: what ends a step where a token's text holds it.
    """
    ends = [any(mark in piece for mark in marks) for piece in pieces]
    return torch.tensor([True, *ends[:-1]])


def step_numbers(starts: Tensor) -> Tensor:
    """Which step each token belongs to, from 0, [tokens], int64."""
    return starts.long().cumsum(0) - 1

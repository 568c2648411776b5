"""Ragged token sequences become rectangular batches, and long lists of them become micro-batches.

Nothing here changes a result: the loss of a batch does not depend on how it was padded or cut.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Padded:
    """Sequences padded on the right. A causal model never looks at what stands behind a token."""

    ids: Tensor
    """Token ids, [rows, width], int64."""
    mask: Tensor
    """One on real tokens, [rows, width], int64."""
    lengths: Tensor
    """Real tokens of each row, [rows], int64."""


def pad_right(sequences: Sequence[Sequence[int]], pad_id: int, device: torch.device | str = "cpu") -> Padded:
    """Put `sequences` ([rows] lists of token ids, none empty) into one right-padded batch on `device`."""
    lengths = torch.tensor([len(sequence) for sequence in sequences], dtype=torch.long)
    width = int(lengths.max())
    ids = torch.full((len(sequences), width), pad_id, dtype=torch.long)
    for row, sequence in enumerate(sequences):
        ids[row, : len(sequence)] = torch.tensor(sequence, dtype=torch.long)
    mask = (torch.arange(width)[None, :] < lengths[:, None]).long()
    return Padded(ids.to(device), mask.to(device), lengths.to(device))


def cut_by_tokens(lengths: Sequence[int], budget: int) -> list[list[int]]:
    """Cut indices `0..len(lengths)` into micro-batches whose padded size stays within `budget` tokens.

    Neighbours in length go together, so little is padded. A sequence longer than the budget gets a
    micro-batch of its own. The order is deterministic: longest first, ties by index.

    Args:
        lengths: tokens of each sequence, [rows].
        budget: largest rows x width of a micro-batch, in tokens.
    """
    order = sorted(range(len(lengths)), key=lambda index: (-lengths[index], index))
    cuts: list[list[int]] = []
    current: list[int] = []
    for index in order:
        width = lengths[current[0]] if current else lengths[index]
        if current and width * (len(current) + 1) > budget:
            cuts.append(current)
            current = []
        current.append(index)
    if current:
        cuts.append(current)
    return cuts

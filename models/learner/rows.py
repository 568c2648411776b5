"""The packed rows that a model reads: all of them if it is whole, a share of them if it is sharded over the ranks.

All ranks make the forward and backward passes of a sharded model in step, so each must read equally many rows. A rank
that has fewer also reads fillers: real rows, whose loss and values do not count.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from contextvars import ContextVar
from typing import NamedTuple

import torch
from torch import Tensor, nn

from models.learner.log_probs import hidden_width
from models.learner.packing import Sequences, pack_shares
from models.learner.upload import to_device
from models.learner.whole_weights import ranks_of

CPU_ROW_TOKENS = 4096
"""Tokens from which on a CPU's row gets no further prompt. With longer rows, the memory that the layers keep exceeds
what the C library reuses, and every tensor's pages are mapped and cleared again: a quarter of an update."""
_AMONG_OWN: ContextVar[bool] = ContextVar("among_own", default=False)
"""Whether a row of a share is being worked on: values that are read in the meantime are this rank's alone."""


class LearnerRow(NamedTuple):
    """One packed row that this rank reads, possibly as a filler."""

    indices: list[int]
    """Indices of its completions among those that are to be read."""
    sequences: Sequences
    """These completions."""
    counts: bool = True
    """False: it is a filler for a row that this rank does not have."""

    def backward(self, loss: Tensor) -> None:
        """Accumulate the gradient of `loss`, a scalar; for a filler, zeros."""
        torch.autograd.backward(loss if self.counts else loss * 0.0)


def among_own_rows() -> bool:
    """Return whether the caller works on a row of this rank alone, so that other ranks do not join in its reads."""
    return _AMONG_OWN.get()


def rows_of(
    model: nn.Module,
    sequences: Sequences,
    budget: int,
    *,
    among: Sequence[int] | None = None,
    together: Sequence[Hashable] | None = None,
    setting: str = "token_budget",
    shared: bool = True,
) -> Iterator[LearnerRow]:
    """Iterate over this rank's packed rows of `sequences`.

    While the caller works on one of them, its other reads are not divided among the ranks.

    Args:
        model: the model that reads them; its width and the ranks that it is sharded over are used.
        sequences: the sequences to read, [completions]; the same on every rank.
        budget: largest number of tokens of a row.
        among: indices of the completions to read; None: all of them.
        together: a label of each completion, [completions]; those with the same label, and of plain sequences the
            same prompt, are never split.
        setting: key of the budget in the recipe, for the error.
        shared: whether rows are divided among the ranks; False: every rank reads all rows.

    Raises:
        UserError: the budget is smaller than one row must be; before the first row.
    """
    ranks, own = ranks_of(model), _AMONG_OWN.get()
    shares = ranks.count if shared and not own else 1
    chosen = range(len(sequences)) if among is None else among
    labels = None if together is None else [together[index] for index in chosen]
    taken = sequences.take(chosen)
    filled = CPU_ROW_TOKENS if next(model.parameters()).device.type == "cpu" else None
    packed = pack_shares(
        taken, budget, shares, width=hidden_width(model), together=labels, setting=setting, filled=filled
    )
    mine = packed[ranks.number if shares > 1 else 0]
    most = max(ranks.all_gather(len(mine))) if own else max(map(len, packed))
    if len(mine) < most:
        lengths = taken.lengths
        shortest = min((row for rows in packed for row in rows), key=lambda row: sum(lengths[i] for i in row))
    try:
        for place in range(most):
            counts = place < len(mine)
            indices = [chosen[position] for position in (mine[place] if counts else shortest)]
            _AMONG_OWN.set(own or shares > 1)
            yield LearnerRow(indices, sequences.take(indices), counts)
            _AMONG_OWN.set(own)
    finally:
        _AMONG_OWN.set(own)


def from_every_rank(model: nn.Module, known: dict[int, Tensor], place: torch.device) -> dict[int, Tensor]:
    """Gather values by completion index from all ranks; inside `rows_of`, return only this rank's values.

    Args:
        model: the model that was read.
        known: values of the completions of this rank's rows, by index.
        place: device for the values of all ranks.
    """
    ranks = ranks_of(model)
    if ranks.count == 1 or _AMONG_OWN.get():
        return known
    parts = ranks.all_gather({index: value.cpu() for index, value in known.items()})
    return {index: to_device(value, place) for part in parts for index, value in part.items()}

"""A process reward model: a value for each step of a completion, by the body and head of a reward model.

    p_k = sigmoid(score read at the last token of step k)          probability that the prefix ends in a right answer
    fit: -y_k log p_k - (1 - y_k) log(1 - p_k), the mean over the labelled steps of a batch          y_k in [0, 1]

On disk it is the folder of a reward model (models.reward_models.model). `process.json` sets how steps are split, and
how the values of a completion's steps become one score when completions are ranked: their minimum, product, mean, or
the last.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import torch
from torch import Tensor

from models.base.atomic_write import write_file
from models.base.errors import UserError
from models.learner.eval_mode import in_eval_mode
from models.learner.log_probs import row_states, use_packed_attention
from models.learner.packing import Sequences, packed_row
from models.learner.rows import from_every_rank, rows_of
from models.learner.whole_weights import with_whole_weights
from models.method.steps import MARKS, pieces_of, step_ends
from models.reward_models.model import scores_of
from models.reward_models.scoring import checked_lengths
from models.reward_models.settings_file import read_settings_file
from models.text.encoding import Codec

if TYPE_CHECKING:
    from transformers import PreTrainedModel

FILE = "process.json"
Aggregation = Literal["min", "product", "mean", "last"]


@dataclass(frozen=True)
class ProcessReading:
    """Settings by which a process reward model splits a completion into steps and aggregates their values."""

    marks: tuple[str, ...] = MARKS
    """Separators that end a step."""
    aggregate: Aggregation = "min"
    """Aggregation of the values of a completion's steps."""

    def ends(self, codec: Codec, completions: Sequence[Sequence[int]]) -> list[tuple[int, ...]]:
        """Return the index of the last token of each step, [completions] of [steps]."""
        return [step_ends(pieces, self.marks) for pieces in pieces_of(codec, completions)]


def aggregated(values: Tensor, rule: Aggregation) -> Tensor:
    """Aggregate the values of a completion's steps, [steps] -> scalar; the value of no steps is 0."""
    if not len(values):
        return values.new_zeros(())
    if rule == "min":
        return values.amin()
    if rule == "product":
        return values.prod()
    return values.mean() if rule == "mean" else values[-1]


def step_logits(
    model: PreTrainedModel, sequences: Sequences, ends: Sequence[Sequence[int]], autocast: torch.dtype | None = None
) -> Tensor:
    """Compute the score at the end of each step, completion after completion, [steps of all]; gradient flows.

    Args:
        model: a reward model.
        sequences: prompts and completions, [completions]; they are read as one row, equal prompts once.
        ends: index of the last token of each step in its completion, [completions] of [steps].
        autocast: precision of the body's matrix products.
    """
    use_packed_attention(model)
    plain = Sequences(sequences.prompts, sequences.completions)  # in such a row a completion is contiguous
    row = packed_row(plain, model.device)
    lengths = torch.tensor([len(ids) for ids in plain.completions], device=row.last.device)
    begins = (row.last - lengths + 1).tolist()
    places = torch.tensor(
        [begin + end for begin, some in zip(begins, ends, strict=True) for end in some],
        dtype=torch.long,
        device=row.last.device,
    )

    def read() -> Tensor:
        states = row_states(model, row.ids, row.positions, row.layout, autocast)
        return scores_of(model, states.index_select(0, places))

    return with_whole_weights(model, read)


@torch.no_grad()
def step_values(
    model: PreTrainedModel,
    sequences: Sequences,
    ends: Sequence[Sequence[int]],
    *,
    token_budget: int = 16384,
    autocast: torch.dtype | None = None,
) -> list[Tensor]:
    """Compute the value of each step in (0, 1), float32 on the CPU; no gradient.

    The result is [completions] tensors of [steps of it].

    Equal sequences are read once.

    Args:
        model: a process reward model.
        sequences: prompts and completions, [completions].
        ends: index of the last token of each step, [completions] of [steps].
        token_budget: tokens of one row, or of the longest sequence if that is more; affects memory only.
        autocast: precision of the body's matrix products.

    Raises:
        UserError: a completion is empty or a sequence longer than the model allows, or a value is not finite.
    """
    budget = max([token_budget, *checked_lengths(model, sequences)])
    different, which = sequences.once_each()
    cuts: dict[int, Sequence[int]] = dict(zip(which, ends, strict=True))
    known: dict[int, Tensor] = {}
    with in_eval_mode(model):
        for row in rows_of(model, different, budget):
            some = [cuts[index] for index in row.indices]
            values = step_logits(model, row.sequences, some, autocast).float().sigmoid().cpu()
            known |= dict(zip(row.indices, values.split([len(cut) for cut in some]), strict=True)) if row.counts else {}
        known = from_every_rank(model, known, torch.device("cpu"))
    for place, index in enumerate(which):
        if not torch.isfinite(known[index]).all():
            raise UserError(f"process reward model: a value of sequence {place} is not finite")
    return [known[index] for index in which]


def write_reading(folder: Path, reading: ProcessReading) -> None:
    """Write the settings for splitting and aggregation into the model's folder."""
    write_file(folder / FILE, json.dumps(asdict(reading), indent=1) + "\n")


def read_reading(folder: Path) -> ProcessReading | None:
    """Read a process reward model's settings for splitting and aggregation; None: the model scores whole completions.

    Raises:
        UserError: its file is not valid.
    """
    reading: ProcessReading | None = read_settings_file(folder / FILE, ProcessReading, "steps")
    return reading

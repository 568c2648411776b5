"""Vectors of texts: the mean hidden state of the reference over the tokens of a text that it reads without a prompt."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor

from models.learner.packing import Sequences
from models.method.resources import RunResources
from models.method.states import reference_states


def without_prompt(resources: RunResources, texts: Sequence[str]) -> Sequences:
    """Encode texts that models read without a prompt, [texts]; the end token precedes each, to predict its first."""
    rows = [tuple(ids) for ids in resources.codec.completions(list(texts))]
    return Sequences([(resources.codec.end,)] * len(rows), rows)


def text_directions(resources: RunResources, texts: Iterable[str], reader: str) -> dict[str, Tensor]:
    """Return the mean hidden state of each distinct text, of length one: text -> [hidden]; see `text_states`."""
    distinct = list(dict.fromkeys(texts))
    states = text_states(resources, distinct, reader)
    return dict(zip(distinct, states / states.norm(dim=1, keepdim=True).clamp(min=1e-12), strict=True))


def text_states(resources: RunResources, texts: Sequence[str], reader: str) -> Tensor:
    """Return the mean hidden state of each text, [texts, hidden], float64 on the CPU.

    No gradient flows. A vector depends only on its own text.

    Args:
        resources: holds the reference.
        texts: one or more texts; an empty text has the state at its end.
        reader: the part that reads them, for the error message.

    Raises:
        UserError: the recipe has no reference.
    """
    sequences = without_prompt(resources, texts)
    rows = sequences.completions
    vectors: dict[int, Tensor] = {}
    for cut, states in reference_states(resources, sequences, reader):
        for index, of_text in zip(cut, states.double().cpu().split([len(rows[i]) for i in cut]), strict=True):
            vectors[index] = of_text.mean(0)
    return torch.stack([vectors[index] for index in range(len(rows))])

"""Where the steps of a completion begin: a step ends with the token whose text holds a mark, such as a line break."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from models.text.encoding import Codec

MARKS = ("\n", ";")
"""What ends a step where nothing else is said."""


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


def pieces_of(codec: Codec, completions: Sequence[Sequence[int]]) -> list[list[str]]:
    """Text of each token by itself, [completions] lists of [tokens of it]; that of an end token is empty."""
    known = sorted({token for ids in completions for token in ids})
    pieces = dict(zip(known, codec.text([[token] for token in known]), strict=True))
    return [[pieces[token] for token in ids] for ids in completions]


def step_texts(codec: Codec, ids: Sequence[int], ends: Sequence[int]) -> list[str]:
    """Text of each step of a completion, [steps].

    Args:
        codec: the policy's.
        ids: of the completion, [tokens].
        ends: place of the last token of each step, [steps].
    """
    return codec.text([ids[begin : end + 1] for begin, end in zip(step_begins(ends), ends, strict=True)])


def step_begins(ends: Sequence[int]) -> list[int]:
    """Place of the first token of each step from those of the last ones, [steps]."""
    return [0, *(end + 1 for end in ends[:-1])] if ends else []


def step_ends(pieces: Sequence[str], marks: Sequence[str]) -> tuple[int, ...]:
    """Place of the last token of each step, [steps], rising; none of a completion without tokens.

    A step says something: what is blank, such as a second line break or an end token behind one, belongs to the step
    before it.
    """
    if not pieces:
        return ()
    ends = [place - 1 for place in step_starts(pieces, marks).nonzero().flatten().tolist()[1:]]
    said: list[int] = []
    begin = 0
    for end in (*ends, len(pieces) - 1):
        if said and not "".join(pieces[begin : end + 1]).strip():
            said[-1] = end
        else:
            said.append(end)
        begin = end + 1
    return tuple(said)

"""Boundaries of the steps of a completion: a token whose text contains a mark, such as a line break, ends a step."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from models.text.encoding import Codec

MARKS = ("\n", ";")
"""Default texts that end a step."""


def step_starts(pieces: Sequence[str], marks: Sequence[str]) -> Tensor:
    """Mark the tokens that begin a step, [tokens], bool; the first one always does.

    Args:
        pieces: text of each token, [tokens].
        marks: texts that end a step if a token's text holds one of them.
    """
    ends = [any(mark in piece for mark in marks) for piece in pieces]
    return torch.tensor([True, *ends[:-1]])


def step_numbers(starts: Tensor) -> Tensor:
    """Return the number of the step that each token belongs to, from 0, [tokens], int64."""
    return starts.long().cumsum(0) - 1


def pieces_of(codec: Codec, completions: Sequence[Sequence[int]]) -> list[list[str]]:
    """Decode each token by itself, [completions] lists of [tokens of it]; the text of an end token is empty."""
    known = sorted({token for ids in completions for token in ids})
    pieces = dict(zip(known, codec.text([[token] for token in known]), strict=True))
    return [[pieces[token] for token in ids] for ids in completions]


def beginnings_of(codec: Codec, ids: Sequence[int]) -> list[str]:
    """Decode every beginning of a completion, from the first token alone to all of them, [tokens]."""
    return codec.text([ids[:stop] for stop in range(1, len(ids) + 1)])


def step_texts(codec: Codec, ids: Sequence[int], ends: Sequence[int]) -> list[str]:
    """Decode each step of a completion, [steps].

    Args:
        codec: the policy's.
        ids: ids of the completion, [tokens].
        ends: index of the last token of each step, [steps].
    """
    return codec.text([ids[begin : end + 1] for begin, end in zip(step_begins(ends), ends, strict=True)])


def step_begins(ends: Sequence[int]) -> list[int]:
    """Return the index of the first token of each step, given those of the last tokens, [steps]."""
    return [0, *(end + 1 for end in ends[:-1])] if ends else []


def step_ends(pieces: Sequence[str], marks: Sequence[str]) -> tuple[int, ...]:
    """Return the index of the last token of each step, [steps], ascending; empty for a completion without tokens.

    A step has visible text: blank text, such as a second line break or an end token after one, belongs to the step
    before it.
    """
    if not pieces:
        return ()
    ends = [place - 1 for place in step_starts(pieces, marks).nonzero().flatten().tolist()[1:]]
    visible_ends: list[int] = []
    begin = 0
    for end in (*ends, len(pieces) - 1):
        if visible_ends and not "".join(pieces[begin : end + 1]).strip():
            visible_ends[-1] = end
        else:
            visible_ends.append(end)
        begin = end + 1
    return tuple(visible_ends)

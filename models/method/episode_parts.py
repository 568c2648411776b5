"""Mapping of values between an episode and the several sequences that models read it as.

A template that cannot be continued, or a program that prompts with contexts of its own, makes an episode that no single
sequence contains. Models read its parts (`RolloutEpisode.parts`); rewards, selection, advantage and loss see the
episode, whose completion is all parts concatenated.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from models.learner.upload import to_device
from models.method.episode import Turn
from models.method.rollout import Rollout


def whole_of(parts: Sequence[Rollout]) -> Rollout:
    """Join the sequences `parts` into the one rollout of their episode; fields other than tokens are the first's."""
    first = parts[0]
    if len(parts) == 1:
        return first
    turns: list[Turn] = []
    offset = 0
    for part in parts:
        own = part.episode.turns or (Turn(0, len(part.completion)),)
        turns += [turn._replace(start=offset + turn.start, stop=offset + turn.stop) for turn in own]
        offset += len(part.completion)
    return replace(
        first,
        completion=tuple(id for part in parts for id in part.completion),
        behaviour_log_probs=_joined([part.behaviour_log_probs for part in parts]),
        reference_log_probs=_joined([part.reference_log_probs for part in parts]),
        trained=tuple(flag for part in parts for flag in part.trained or (True,) * len(part.completion)),
        episode=replace(first.episode, turns=tuple(turns), history=0, parts=tuple(parts)),
    )


def _joined(rows: Sequence[Tensor | None]) -> Tensor | None:
    known = [row for row in rows if row is not None]
    return torch.cat(known) if len(known) == len(rows) else None


def owners_of(rollouts: Sequence[Rollout]) -> list[int]:
    """Return the index of the rollout that each sequence of `parts_of(rollouts)` belongs to, [sequences]."""
    return [number for number, rollout in enumerate(rollouts) for _ in rollout.episode.parts or (rollout,)]


def places_of(rollouts: Sequence[Rollout]) -> list[list[int]]:
    """Return the indices in `parts_of(rollouts)` of each rollout's sequences, [completions][sequences of it]."""
    places: list[list[int]] = [[] for _ in rollouts]
    for place, owner in enumerate(owners_of(rollouts)):
        places[owner].append(place)
    return places


def episodes_together(rollouts: Sequence[Rollout]) -> list[int] | None:
    """Return labels by which all sequences of an episode are packed into one row, [sequences]; None: not needed."""
    return owners_of(rollouts) if any(rollout.episode.parts for rollout in rollouts) else None


def rows_of_parts(rows: Sequence[Tensor], rollouts: Sequence[Rollout]) -> list[Tensor]:
    """Split the values of completions into those of their sequences: the inverse of `rows_of_wholes`.

    [completions] tensors of [tokens of it, ...] -> [sequences] tensors of [tokens of it, ...].
    """
    split: list[Tensor] = []
    for row, rollout in zip(rows, rollouts, strict=True):
        parts = rollout.episode.parts
        split += row.split([len(part.completion) for part in parts]) if parts else [row]
    return split


def rows_of_wholes(rows: Sequence[Tensor], rollouts: Sequence[Rollout]) -> list[Tensor]:
    """Join values of sequences into those of their completions: the inverse of `rows_of_parts`."""
    remaining = iter(rows)
    return [
        torch.cat([next(remaining) for _ in parts]) if (parts := rollout.episode.parts) else next(remaining)
        for rollout in rollouts
    ]


def wholes_of_row(indices: Sequence[int], owners: Sequence[int]) -> tuple[list[int], list[int]]:
    """Group the sequences of a packed row by their completion; the row must hold whole completions.

    Args:
        indices: the row's sequences, [sequences of the row].
        owners: the completion that each of all sequences belongs to (`owners_of`).

    Returns:
        Indices of the completions, by first appearance.
        Places in `indices`, the sequences of each completion in their order, [sequences of the row].
    """
    members: dict[int, list[int]] = {}
    for place, index in enumerate(indices):
        members.setdefault(owners[index], []).append(place)
    return list(members), [place for places in members.values() for place in sorted(places, key=indices.__getitem__)]


def sums_of_row(values: Sequence[Tensor], indices: Sequence[int], owners: Sequence[int]) -> tuple[list[int], Tensor]:
    """Sum the values of a packed row's sequences by completion; the row must hold whole completions. Gradient flows.

    Args:
        values: one value per sequence, [sequences of the row] scalars.
        indices: the row's sequences, [sequences of the row].
        owners: the completion that each of all sequences belongs to (`owners_of`).

    Returns:
        Completions by first appearance, and their sums, [completions of the row].
    """
    wholes, _ = wholes_of_row(indices, owners)
    number = {index: position for position, index in enumerate(wholes)}
    stacked = torch.stack(list(values))
    owner = to_device(torch.tensor([number[owners[index]] for index in indices]), stacked.device)
    return wholes, stacked.new_zeros(len(wholes)).index_add(0, owner, stacked)

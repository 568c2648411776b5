"""Decisions that need the whole data: which rows are kept, and which ids they get.

A prompt is identified by its exact text: two prompts that differ in case, in white space or in a superscript are two
problems. Prompts that are equal after normalisation are alike: alike prompts belong to one split, whatever kinds of row
they are in. If the data give them two splits, the rows of the earlier split are dropped (in the order train,
validation, gate). The gate has problems only.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, pairwise

import numpy as np
from numpy.typing import NDArray

from models.datasets.schema import KINDS, SPLITS, Kind

GATE = SPLITS.index("gate")
Flags = NDArray[np.bool_]
Numbers = NDArray[np.int32]


@dataclass(frozen=True)
class SourceRows:
    """The rows of one source: the prompts and splits of its raw rows, and the kinds that they become."""

    prompts: NDArray[np.uint64]
    """Hashes of the exact text of the prompts, [rows, 2]."""
    alike: NDArray[np.uint64]
    """Hashes of the normalised prompts, [rows, 2]."""
    splits: NDArray[np.int8]
    """Indices in SPLITS, [rows]."""
    kinds: tuple[Kind, ...]
    has: Mapping[Kind, Flags] = field(default_factory=dict)
    """Whether each raw row has a row of a kind, [rows]; a kind that is left out is in all of them."""


@dataclass(frozen=True)
class RowPlacement:
    """Placement of the rows of one kind in one part, [rows] each."""

    stays: Flags
    numbers: Numbers
    """Number in the id of a row that stays, counted over all parts of the kind."""
    problems: Numbers
    """Number of the problem with the same prompt; -1 if there is none."""


@dataclass(frozen=True)
class Dropped:
    """Counts of the rows that are dropped because their prompt is held out."""

    rows: int
    alike: int
    """Rows among them whose prompt is held out only in another spelling."""


def place(parts: Sequence[SourceRows], *, derived_problems: bool) -> tuple[list[dict[Kind, RowPlacement]], Dropped]:
    """Place the rows of each part, kind by kind, and count the dropped ones.

    Args:
        parts: the parts, in the order of the data.
        derived_problems: whether problems were derived from demonstrations or pairs. If so, a prompt is one problem,
            however many rows it has. Otherwise every problem of the source is kept, so that validation can report
            duplicates.
    """
    splits = np.concatenate([part.splits for part in parts])
    prompts = same_prompts(np.concatenate([part.prompts for part in parts]))
    latest = _latest(same_prompts(np.concatenate([part.alike for part in parts])), splits)
    stays = latest == splits
    alike_only = ~stays & (_latest(prompts, splits) == splits)
    ends = [0, *accumulate(len(part.splits) for part in parts)]
    spans = [slice(start, end) for start, end in pairwise(ends)]
    problem_of = np.full(int(prompts.max(initial=-1)) + 1, -1, dtype=np.int32)
    made: list[dict[Kind, RowPlacement]] = [{} for _ in parts]
    dropped = of_alike = 0
    for kind in KINDS:  # problems come first: the other kinds refer to them
        count = 0
        for part, span, placed in zip(parts, spans, made, strict=True):
            if kind not in part.kinds:
                continue
            kept = stays[span] if kind == "problems" else stays[span] & (splits[span] != GATE)
            has = part.has.get(kind, True)
            dropped += int((~kept & has).sum())
            of_alike += int((alike_only[span] & has).sum())
            kept = kept & has
            own = prompts[span]
            if kind == "problems":
                first = _first_of_each(own, kept) & (problem_of[own] < 0)
                if derived_problems:
                    kept = first
            numbers = (count + np.cumsum(kept) - 1).astype(np.int32)
            count += int(kept.sum())
            if kind == "problems":
                problem_of[own[first]] = numbers[first]
            placed[kind] = RowPlacement(kept, numbers, problem_of[own])
    return made, Dropped(dropped, of_alike)


def _latest(prompts: Numbers, splits: NDArray[np.int8]) -> NDArray[np.int8]:
    """Return the last split, in the order of SPLITS, that has each row's prompt, [rows]."""
    latest = np.zeros(int(prompts.max(initial=-1)) + 1, dtype=np.int8)
    np.maximum.at(latest, prompts, splits)
    return latest[prompts]


def hashes_of(texts: Iterable[str]) -> NDArray[np.uint64]:
    """Return a 128-bit hash of each text, [texts, 2]; it is equal for equal texts only."""
    digests = bytearray()
    for text in texts:
        digests += hashlib.blake2b(text.encode(), digest_size=16).digest()
    return np.frombuffer(digests, dtype=np.uint64).reshape(-1, 2)


def same_prompts(hashes: NDArray[np.uint64]) -> Numbers:
    """Return a number for each row, the same for rows with the same prompt, [rows, 2] -> [rows]."""
    order = np.argsort(hashes[:, 0])
    ordered = hashes[order]
    if ((ordered[1:] != ordered[:-1]) == (False, True)).all(1).any():  # two hashes have the same first half
        order = np.lexsort((hashes[:, 1], hashes[:, 0]))
        ordered = hashes[order]
    begins = np.ones(len(order), dtype=np.int32)
    begins[1:] = (ordered[1:] != ordered[:-1]).any(1)
    numbers = np.empty(len(order), dtype=np.int32)
    numbers[order] = np.cumsum(begins) - 1
    return numbers


def _first_of_each(prompts: Numbers, kept: Flags) -> Flags:
    """Return whether each row is the first kept row of its prompt, [rows]."""
    first = np.zeros(len(prompts), dtype=bool)
    places = np.flatnonzero(kept)
    _, firsts = np.unique(prompts[places], return_index=True)
    first[places[firsts]] = True
    return first

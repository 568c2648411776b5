"""Decisions that need the whole data: which rows stay, and which ids they get.

A prompt is identified by its exact text: two prompts that differ in case, in white space or in a superscript are two
problems. Prompts that are equal after normalisation are alike: alike prompts belong to one split, whatever kinds of row
they are in. Where the data give them two splits, the row of the split that is seen earlier is dropped (train before
validation before gate). The gate has problems only.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise

import numpy as np
from numpy.typing import NDArray

from models.datasets.schema import KINDS, SPLITS, Kind

GATE = SPLITS.index("gate")
Flags = NDArray[np.bool_]
Numbers = NDArray[np.int32]


@dataclass(frozen=True)
class Part:
    """The rows of one source: what its raw rows say, and which kinds they become."""

    prompts: NDArray[np.uint64]
    """Hashes of the prompts' exact text, [rows, 2]."""
    alike: NDArray[np.uint64]
    """Hashes of the normalised prompts, [rows, 2]."""
    splits: NDArray[np.int8]
    """Places in SPLITS, [rows]."""
    kinds: tuple[Kind, ...]


@dataclass(frozen=True)
class Placed:
    """What becomes of the rows of one kind in one part, [rows] each."""

    stays: Flags
    numbers: Numbers
    """What stands in the id of a row that stays, counted over all parts of the kind."""
    problems: Numbers
    """The number of the problem with the same prompt; -1: there is none."""


@dataclass(frozen=True)
class Dropped:
    """Counts of the rows that are dropped because their prompt is held out."""

    rows: int
    alike: int
    """Those among them whose prompt is held out in another spelling only."""


def place(parts: Sequence[Part], *, derived_problems: bool) -> tuple[list[dict[Kind, Placed]], Dropped]:
    """Place each part's rows, kind by kind, and count the dropped ones.

    Args:
        parts: in the order of the data.
        derived_problems: problems were read off demonstrations or pairs; then a prompt is one problem, however many
            rows it has. Otherwise every problem of the source is kept, so that validation can report a doubled one.
    """
    splits = np.concatenate([part.splits for part in parts])
    prompts = same_prompts(np.concatenate([part.prompts for part in parts]))
    latest = _latest(same_prompts(np.concatenate([part.alike for part in parts])), splits)
    stays = latest == splits
    alike_only = ~stays & (_latest(prompts, splits) == splits)
    ends = [0, *accumulate(len(part.splits) for part in parts)]
    spans = [slice(start, end) for start, end in pairwise(ends)]
    problem_of = np.full(int(prompts.max(initial=-1)) + 1, -1, dtype=np.int32)
    made: list[dict[Kind, Placed]] = [{} for _ in parts]
    dropped = of_alike = 0
    for kind in KINDS:  # problems come first: the other kinds refer to them
        count = 0
        for part, span, placed in zip(parts, spans, made, strict=True):
            if kind not in part.kinds:
                continue
            kept = stays[span] if kind == "problems" else stays[span] & (splits[span] != GATE)
            dropped += int((~kept).sum())
            of_alike += int(alike_only[span].sum())
            own = prompts[span]
            if kind == "problems":
                first = _first_of_each(own, kept) & (problem_of[own] < 0)
                if derived_problems:
                    kept = first
            numbers = (count + np.cumsum(kept) - 1).astype(np.int32)
            count += int(kept.sum())
            if kind == "problems":
                problem_of[own[first]] = numbers[first]
            placed[kind] = Placed(kept, numbers, problem_of[own])
    return made, Dropped(dropped, of_alike)


def _latest(prompts: Numbers, splits: NDArray[np.int8]) -> NDArray[np.int8]:
    """The split of each row's prompt that is seen last, [rows]."""
    latest = np.zeros(int(prompts.max(initial=-1)) + 1, dtype=np.int8)
    np.maximum.at(latest, prompts, splits)
    return latest[prompts]


def hashes_of(texts: Iterable[str]) -> NDArray[np.uint64]:
    """A hash of 128 bits of each text, [texts, 2]: equal where the texts are, and nowhere else."""
    digests = bytearray()
    for text in texts:
        digests += hashlib.blake2b(text.encode(), digest_size=16).digest()
    return np.frombuffer(digests, dtype=np.uint64).reshape(-1, 2)


def same_prompts(hashes: NDArray[np.uint64]) -> Numbers:
    """A number for each row, the same for rows of one prompt, [rows, 2] -> [rows]."""
    order = np.argsort(hashes[:, 0])
    ordered = hashes[order]
    if ((ordered[1:] != ordered[:-1]) == (False, True)).all(1).any():  # the first halves of two hashes are the same
        order = np.lexsort((hashes[:, 1], hashes[:, 0]))
        ordered = hashes[order]
    begins = np.ones(len(order), dtype=np.int32)
    begins[1:] = (ordered[1:] != ordered[:-1]).any(1)
    numbers = np.empty(len(order), dtype=np.int32)
    numbers[order] = np.cumsum(begins) - 1
    return numbers


def _first_of_each(prompts: Numbers, kept: Flags) -> Flags:
    """Whether a row is the first of its prompt that is kept, [rows]."""
    first = np.zeros(len(prompts), dtype=bool)
    places = np.flatnonzero(kept)
    _, firsts = np.unique(prompts[places], return_index=True)
    first[places[firsts]] = True
    return first

"""Copied text: runs of words that a policy's samples share with the rows of its training (paper 310, 2303.15715).

    share   of a sample's runs of `words` words, the share that occurs in a training row
    run     longest run of words that a sample shares with training rows

A sample counts as copied if `run` words in a row occur in a single training row; this is exact. A longer run may join
rows that overlap by `run` words, a shorter one rows that overlap by `words` words. Letter case and white space do not
count. Runs of the sample's own prompt are not copies: runs of `words` words that the prompt has, and
longer runs with such a run in them, are left out.

Only equal words are found: a row that is recited with other commas, or with every fifth word changed, has no run. A
sample of fewer than `run` words never counts as copied.

The samples are indexed, and the training rows are read once and not kept, so the memory does not depend on their
number. Runs are compared by hashes of 64 bits.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, NonNegativeFloat

from models.base.bounds import Positive
from models.base.errors import UserError
from models.datasets.schema import Kind, available, read_table
from models.evaluation.records import Completion, PromptRecord

if TYPE_CHECKING:
    from models.method.problem import Problem

Hashes = NDArray[np.uint64]
_BASE = 0x9E3779B97F4A7C15
"""Odd multiplier of the polynomial hash, modulo 2^64."""
_TEXTS: dict[Kind, tuple[str, ...]] = {"demonstrations": ("completion",), "preferences": ("chosen", "rejected")}
"""Columns of the training rows that a policy may learn to write, by kind of row."""


@dataclass(frozen=True, kw_only=True)
class CopiedSettings:
    """Measurement of text that is copied from training rows. Set under `gate.copied:`."""

    __pydantic_config__ = {"extra": "forbid", "allow_inf_nan": False}  # noqa: RUF012 - not a field
    words: Annotated[int, Field(ge=2, le=1000)] = 8
    """Words of the shortest run that counts; shorter runs are shared by chance."""
    run: Positive = 16
    """Words in a row that make a sample count as copied, if they occur in a single training row."""
    margin: NonNegativeFloat = 0.02
    """Largest allowed rise of the share of copied samples."""

    def __post_init__(self) -> None:
        if self.run < self.words:
            raise UserError(f"gate.copied.run: {self.run} is below gate.copied.words, {self.words}; no run is so short")

    def is_copied(self, completion: Completion) -> bool:
        """Return whether a measured completion counts as copied."""
        return completion.copied_run >= self.run


@dataclass(frozen=True)
class Overlap:
    """Words that a text shares with training rows."""

    run: int
    """Words of its longest shared run; 0: none."""
    share: float
    """Share of its runs of `words` words that are shared, in [0, 1]; 0 if it has none."""


def overlaps(texts: Sequence[str], prompts: Sequence[str], rows: Iterable[str], words: int, run: int) -> list[Overlap]:
    """Measure what each text shares with the training rows, [texts].

    Args:
        texts: samples of a policy.
        prompts: prompt of each, [texts]; runs of it are not counted.
        rows: texts of the training rows, read once.
        words: words of the shortest run that counts.
        run: words of a run that must occur in a single row; at least `words`.
    """
    ids = [_ids(text) for text in texts]
    given = [_ids(prompt) for prompt in prompts]
    sizes = (words, run)
    copied = dict(
        zip(sizes, _copied([[_hashes(each, size) for each in ids] for size in sizes], rows, sizes), strict=True)
    )

    def measured(place: int) -> Overlap:
        short, long = _hashes(ids[place], words), _hashes(ids[place], run)
        repeated = np.isin(short, _hashes(given[place], words))
        # a long run with a repeated short one in it does not count either: it is the prompt and some words more
        inside = np.array([repeated[begin : begin + run - words + 1].any() for begin in range(len(long))], dtype=bool)
        flags = np.isin(short, copied[words]) & ~repeated, np.isin(long, copied[run]) & ~inside
        return _overlap(*flags, words, run)

    return [measured(place) for place in range(len(ids))]


def with_copied(
    records: Sequence[PromptRecord], problems: Sequence[Problem], data: Path, settings: CopiedSettings
) -> list[PromptRecord]:
    """Return the records with what each completion shares with the training rows of a data set.

    Args:
        records: answers, [problems].
        problems: the answered problems.
        data: folder of the prepared data set.
        settings: the size of the runs.

    Raises:
        UserError: the data set has no training rows with texts to learn.
    """
    answered = [
        (completion.text, problem.prompt)
        for record, problem in zip(records, problems, strict=True)
        for completion in (record.greedy, *record.samples)
    ]
    texts, prompts = [text for text, _ in answered], [prompt for _, prompt in answered]
    measured = iter(overlaps(texts, prompts, training_texts(data), settings.words, settings.run))

    def with_overlap(completion: Completion) -> Completion:
        overlap = next(measured)
        return replace(completion, copied_run=float(overlap.run), copied_share=overlap.share)

    return [
        replace(record, greedy=with_overlap(record.greedy), samples=tuple(map(with_overlap, record.samples)))
        for record in records
    ]


def training_texts(data: Path) -> Iterator[str]:
    """Yield the texts of a data set that a policy may learn to write: demonstrations, and both sides of preferences.

    Raises:
        UserError: it has none.
    """
    kinds = [kind for kind, splits in available(data).items() if kind in _TEXTS and "train" in splits]
    if not kinds:
        raise UserError(
            "gate.copied: the data set has neither demonstrations nor preferences to copy from; set it to null"
        )
    for kind in kinds:
        table = read_table(data, kind, "train").select(list(_TEXTS[kind]))
        for batch in table.to_batches():
            for column in batch.columns:
                yield from map(str, column.to_pylist())


def _hashes(ids: Hashes, words: int) -> Hashes:
    """Return the hash of each run of `words` words, in order, [runs], uint64; empty if there are fewer words."""
    count = max(0, len(ids) - words + 1)
    hashes = np.zeros(count, np.uint64)
    for place in range(words if count else 0):
        hashes = hashes * np.uint64(_BASE) + ids[place : place + count]
    return hashes


def _copied(runs: Sequence[Sequence[Hashes]], rows: Iterable[str], sizes: Sequence[int]) -> list[Hashes]:
    """Return the hashes of the samples' runs that occur in a row, by size; `runs`: [sizes][texts] hashes."""
    known = [np.unique(np.concatenate([np.zeros(0, np.uint64), *of_size])) for of_size in runs]
    shared = [np.zeros(len(hashes), bool) for hashes in known]
    for batch in _batches(rows) if len(known[0]) else ():
        ids = [_ids(row) for row in batch]
        for size, hashes, occurs in zip(sizes, known, shared, strict=True):
            if not len(hashes):
                continue
            of_rows = np.unique(np.concatenate([_hashes(each, size) for each in ids]))
            places = np.searchsorted(hashes, of_rows).clip(max=len(hashes) - 1)
            occurs[places[hashes[places] == of_rows]] = True
    return [hashes[flags] for hashes, flags in zip(known, shared, strict=True)]


_IDS: dict[str, int] = {}


def _word_id(word: str) -> int:
    """Return a number of 64 bits for a word, the same in every process."""
    if word not in _IDS:
        if len(_IDS) > 1 << 20:
            _IDS.clear()
        _IDS[word] = int.from_bytes(blake2b(word.encode(), digest_size=8).digest(), "big")
    return _IDS[word]


def _ids(text: str) -> Hashes:
    return np.array([_word_id(word) for word in text.casefold().split()], dtype=np.uint64)


def _overlap(short: NDArray[np.bool_], long: NDArray[np.bool_], words: int, run: int) -> Overlap:
    """Return the overlap of a text from the flags of its runs of `words` and of `run` words, [runs] each."""
    share = float(short.mean()) if short.size else 0.0
    if long.any():
        return Overlap(_longest(long) + run - 1, share)
    return Overlap(min(_longest(short) + words, run) - 1 if short.any() else 0, share)


def _longest(flags: NDArray[np.bool_]) -> int:
    """Return the largest number of true flags one after the other."""
    longest = current = 0
    for flag in flags.tolist():
        current = current + 1 if flag else 0
        longest = max(longest, current)
    return longest


def _batches(rows: Iterable[str], size: int = 4096) -> Iterator[list[str]]:
    batch: list[str] = []
    for row in rows:
        batch.append(row)
        if len(batch) == size:
            yield batch
            batch = []
    if batch:
        yield batch


def copied_flags(records: Sequence[PromptRecord], settings: CopiedSettings) -> NDArray[np.float64]:
    """Return the share of each prompt's samples that are copied, [prompts]; NaN if it was not measured."""
    flags = [
        [math.nan if math.isnan(s.copied_run) else float(settings.is_copied(s)) for s in record.samples]
        for record in records
    ]
    shares: NDArray[np.float64] = np.array(flags, dtype=np.float64).mean(axis=1)
    return shares

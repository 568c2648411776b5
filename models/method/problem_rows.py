"""Lazy sequence of problems: each is made from a split's rows on access; ids and lengths are read without making any.

A training draws few of the prompts of a large split. For each, 8 bytes are held, or a few times that; texts and tokens
are on the disk. Code that reads all prompts takes a `Sequence[Problem]`, which may be a plain list, and uses the
functions of this module for their lengths and ids.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain, pairwise
from typing import Any, overload

import numpy as np
from numpy.typing import NDArray

from models.datasets.arithmetic import SOUND
from models.datasets.placing import hashes_of, same_prompts
from models.datasets.row_table import Names, Row, RowTable
from models.datasets.schema import SYSTEM
from models.method.problem import KnownAnswer, Origin, Problem
from models.text.token_rows import TokenRows, few

TOGETHER = 4096
"""Number of problems that are made at a time when a sequence is iterated over."""
TRUTHS = ("answer", "tests", "entry_point")
"""Columns of a problem that define its right answer."""
Numbers = NDArray[np.int64]


@dataclass(frozen=True)
class ProblemRows:
    """The tables that the problems of a split are made from."""

    table: RowTable
    key: str
    """The column with the ids of the problems."""
    prompts: TokenRows
    answers: Mapping[str, tuple[Origin, TokenRows]]
    """Column with answers in the data -> the origin of these answers in the loop, and their tokens."""
    truths: tuple[Names, RowTable] | None = None
    """Table of the problems with its index by id, in which answer and tests of rows without an answer are looked up."""

    @cached_property
    def names(self) -> Names:
        """Index from a problem's id to its rows."""
        return Names(self.table.column(self.key))

    def problems(self, groups: Sequence[Sequence[int]]) -> list[Problem]:
        """Make one problem of each group of rows, [groups]: the prompt of its first row with the answers of all."""
        rows = iter(self.table.rows([row for group in groups for row in group]))
        row_groups = [[next(rows) for _ in group] for group in groups]
        truths = self._truths([group[0] for group in row_groups])
        return [
            Problem(
                str(group_rows[0][self.key]),
                str(group_rows[0]["prompt"]),
                truth["answer"],
                int(group_rows[0]["level"]),
                tuple(self.prompts[group[0]]),
                tuple(
                    known for number, row in zip(group, group_rows, strict=True) for known in self._known(number, row)
                ),
                truth["tests"],
                truth["entry_point"],
                str(group_rows[0].get(SYSTEM, "")),
            )
            for group, group_rows, truth in zip(groups, row_groups, truths, strict=True)
        ]

    def _known(self, number: int, row: Row) -> Iterator[KnownAnswer]:
        for column, (origin, tokens) in self.answers.items():
            yield KnownAnswer(origin, tuple(tokens[number]), str(row[column]), _flaw(origin, str(row["flaw"])))

    def _truths(self, rows: Sequence[Row]) -> list[dict[str, str]]:
        own = [{column: str(row.get(column, "")) for column in TRUTHS} for row in rows]
        if self.truths is None:
            return own
        names, table = self.truths
        unknown = [place for place, truth in enumerate(own) if not truth["answer"]]
        looked_up = zip(unknown, names.rows([str(rows[place]["prompt_id"]) for place in unknown]), strict=True)
        matches = [(place, rows[-1]) for place, rows in looked_up if rows]
        for (place, _), truth in zip(matches, table.rows([row for _, row in matches]), strict=True):
            own[place] = {column: str(truth[column]) for column in TRUTHS}
        return own


def _flaw(origin: Origin, flaw: str) -> str:
    """Return the flaw of an answer: a preference's is that of its worse answer; a sound demonstration has none."""
    return "" if origin == "chosen" or flaw == SOUND else flaw


def grouped(table: RowTable, key: str, rows: Numbers) -> tuple[Numbers, Numbers | None]:
    """Sort `rows` so that rows with equal `key` are adjacent, groups in the order of their first rows.

    Returns the sorted rows and the index at which each group begins, as `Problems` takes them. Some fifty bytes per row
    are held during the call.
    """
    hashes = np.concatenate([hashes_of(map(str, values)) for values in table.column(key)])[rows]
    numbers = same_prompts(hashes)
    _, firsts = np.unique(numbers, return_index=True)
    if len(firsts) == len(rows):
        return rows, None
    ranks = np.empty(len(firsts), np.int64)
    ranks[firsts.argsort()] = np.arange(len(firsts))
    order = ranks[numbers].argsort(kind="stable")
    begins = np.concatenate([np.zeros(1, np.int64), np.cumsum(np.bincount(ranks[numbers]))])
    return rows[order], begins


class Problems(Sequence[Problem]):
    """Lazy sequence of problems, each made from its rows on access.

    Args:
        source: the tables that they are made from.
        rows: the rows of the problems, problem after problem, [rows].
        begins: index in `rows` at which those of each begin, and the last end, [problems + 1]; None: each has one row.
    """

    def __init__(self, source: ProblemRows, rows: Numbers, begins: Numbers | None = None) -> None:
        self._source, self._rows, self._begins = source, rows, begins

    def __len__(self) -> int:
        return len(self._rows) if self._begins is None else len(self._begins) - 1

    @overload
    def __getitem__(self, at: int) -> Problem: ...
    @overload
    def __getitem__(self, at: slice) -> Problems: ...
    def __getitem__(self, at: int | slice) -> Problem | Problems:
        numbers = range(len(self))[at]
        if isinstance(numbers, range):
            return self.take(np.arange(numbers.start, numbers.stop, numbers.step))
        return self._source.problems(self._groups(numbers, numbers + 1))[0]

    def __iter__(self) -> Iterator[Problem]:
        for first in range(0, len(self), TOGETHER):
            yield from self._source.problems(self._groups(first, min(len(self), first + TOGETHER)))

    def take(self, places: Numbers) -> Problems:
        """Return a lazy sequence of the problems at the indices `places`, in that order."""
        if self._begins is None:
            return Problems(self._source, self._rows[places])
        counts = np.diff(self._begins)[places]
        begins = np.concatenate([np.zeros(1, np.int64), np.cumsum(counts)])
        within = np.arange(begins[-1]) - np.repeat(begins[:-1], counts)
        return Problems(self._source, self._rows[np.repeat(self._begins[:-1][places], counts) + within], begins)

    @property
    def prompt_lengths(self) -> Numbers:
        """Tokens of each prompt, [problems]."""
        return self._source.prompts.lengths[self._firsts]

    @property
    def answers(self) -> Numbers:
        """Number of known answers of each problem, [problems]."""
        rows = np.ones(len(self), np.int64) if self._begins is None else np.diff(self._begins)
        return rows * len(self._source.answers)

    def ids(self) -> Iterator[str]:
        """Iterate over the ids of the problems, [problems]."""
        for first in range(0, len(self), TOGETHER):
            rows = self._source.table.rows(self._firsts[first : first + TOGETHER].tolist())
            yield from (str(row[self._source.key]) for row in rows)

    @cached_property
    def levels(self) -> Numbers:
        """Level of each problem, [problems]."""
        pieces = (self._firsts[first : first + TOGETHER].tolist() for first in range(0, len(self), TOGETHER))
        return np.array([int(row["level"]) for rows in pieces for row in self._source.table.rows(rows)], np.int64)

    def places_of(self, names: Collection[str]) -> Numbers:
        """Return the indices of the problems with these ids, ascending; unknown ids are ignored."""
        if not names:
            return np.empty(0, np.int64)
        rows = np.array(list(chain.from_iterable(self._source.names.rows(list(names)))), np.int64)
        return np.flatnonzero(np.isin(self._firsts, rows))

    def held(self) -> Sequence[Problem]:
        """Return the problems as a list, made now, if they are few; otherwise this lazy sequence."""
        tokens = int(self.prompt_lengths.sum())
        tokens += sum(int(ids.lengths[self._rows].sum()) for _, ids in self._source.answers.values())
        return list(self) if few(len(self._rows), tokens) else self

    @property
    def _firsts(self) -> Numbers:
        return self._rows if self._begins is None else self._rows[self._begins[:-1]]

    def _groups(self, first: int, end: int) -> list[list[int]]:
        if self._begins is None:
            return [[row] for row in self._rows[first:end].tolist()]
        rows: list[int] = self._rows[self._begins[first] : self._begins[end]].tolist()
        begins = (self._begins[first : end + 1] - self._begins[first]).tolist()
        return [rows[begin:stop] for begin, stop in pairwise(begins)]


def taken(problems: Sequence[Problem], places: Any) -> Sequence[Problem]:
    """Return the problems at the indices `places`, [taken], in that order."""
    places = np.asarray(places, dtype=np.int64)
    if isinstance(problems, Problems):
        return problems.take(places)
    return [problems[place] for place in places.tolist()]


def prompt_lengths(problems: Sequence[Problem]) -> Numbers:
    """Return the number of tokens of each prompt, [problems]."""
    if isinstance(problems, Problems):
        return problems.prompt_lengths
    return np.fromiter((len(problem.tokens) for problem in problems), np.int64, len(problems))


def levels_of(problems: Sequence[Problem]) -> Numbers:
    """Return the level of each problem, [problems]."""
    if isinstance(problems, Problems):
        return problems.levels
    return np.fromiter((problem.level for problem in problems), np.int64, len(problems))


def known_answers(problems: Sequence[Problem]) -> Numbers:
    """Return the number of known answers of each problem, [problems]."""
    if isinstance(problems, Problems):
        return problems.answers
    return np.fromiter((len(problem.known) for problem in problems), np.int64, len(problems))


def ids_of(problems: Sequence[Problem]) -> Iterator[str]:
    """Iterate over the ids of the problems, [problems]."""
    return problems.ids() if isinstance(problems, Problems) else (problem.id for problem in problems)


def places_of(problems: Sequence[Problem], names: Collection[str]) -> Numbers:
    """Return the indices of the problems with these ids, ascending; unknown ids are ignored."""
    if isinstance(problems, Problems):
        return problems.places_of(names)
    return np.array([place for place, problem in enumerate(problems) if problem.id in names], np.int64)

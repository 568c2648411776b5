"""Problems that are repeated in a file: equal prompts after normalisation, with the same answer and tests.

The gate's evidence treats problems as independent. Five copies of a problem, as an export may leave them, are not five
independent observations, so validation sets all but the first aside and reports them. This is only a check for
copies: no answer moves from one row to another.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

import numpy as np
import pandas as pd

from models.datasets.hashes import Hashes, hashes_of, repeated, within
from models.datasets.normalise import normalise

PROBLEM_COLUMNS = ("id", "prompt", "answer", "tests", "entry_point")
"""Columns that distinguish problems, and the id of the row."""


def problem_hashes(frame: pd.DataFrame) -> Hashes:
    """Return a hash of each problem, [rows]."""
    columns = [frame[name].fillna("").astype(str) for name in PROBLEM_COLUMNS[1:]]
    prompts, *others = columns
    plain = {text: normalise(text) for text in prompts.unique()}
    rows = zip(prompts.map(plain), *(column.str.strip() for column in others), strict=True)
    return hashes_of(["\0".join(row) for row in rows])


def first_of_repeated(frames: Callable[[], Iterable[pd.DataFrame]]) -> Mapping[int, str]:
    """Return hash -> id of its first row, for each problem that occurs more than once. Memory is eight bytes a row.

    Args:
        frames: returns the rows of a file in pieces, with `PROBLEM_COLUMNS`; called again if there are such problems.
    """
    several = repeated([problem_hashes(frame) for frame in frames()])
    first: dict[int, str] = {}
    for frame in frames() if len(several) else ():
        each = problem_hashes(frame)
        for place in np.flatnonzero(within(each, several)):
            first.setdefault(int(each[place]), str(frame["id"].iloc[place]))
    return first


def is_first(frame: pd.DataFrame, first: Mapping[int, str]) -> pd.Series:
    """Return whether no earlier row of the file is the same problem, [rows], with the index of `frame`."""
    if not first:
        return pd.Series(True, index=frame.index)
    ids = frame["id"].fillna("").astype(str)
    same = [first.get(number, name) == name for number, name in zip(problem_hashes(frame).tolist(), ids, strict=True)]
    return pd.Series(same, index=frame.index, dtype=bool)

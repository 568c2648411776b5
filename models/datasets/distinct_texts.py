"""The different texts of a data set's training rows, one after the other: a few rows are in memory."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import compress
from pathlib import Path

import numpy as np

from models.datasets.placing import hashes_of, same_prompts
from models.datasets.schema import TURNS, Kind, available, table_pieces


@dataclass(frozen=True)
class DistinctTexts(Iterable[str]):
    """Texts of the training split, each where it stands first; they can be gone through again.

    Of a text 16 bytes are held, and three times that before the first one comes.
    """

    folder: Path
    columns: Mapping[Kind, tuple[str, ...]]
    """Of each kind, those that hold the texts."""
    most: int | None = None
    """Of more different texts than this, those whose hashes are least: the same ones in whatever order they stand."""

    def __iter__(self) -> Iterator[str]:
        numbers = same_prompts(hashes_of(self._all()))
        first = np.zeros(len(numbers), dtype=bool)
        first[np.unique(numbers, return_index=True)[1]] = True
        if self.most is not None:
            first &= numbers < self.most  # each is its hash's place among all hashes
        yield from compress(self._all(), first)

    def _all(self) -> Iterator[str]:
        for kind, splits in available(self.folder).items():
            for piece in table_pieces(self.folder, kind, "train") if "train" in splits else ():
                for column in self.columns[kind]:
                    # what parts the turns of an episode is no text that anybody reads
                    yield from (str(text or "").replace(TURNS, "\n") for text in piece.column(column).to_pylist())

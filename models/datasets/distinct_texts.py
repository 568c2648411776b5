"""The distinct texts of a data set's training rows, streamed with few rows in memory."""

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
    """Distinct texts of the training split, in the order of first occurrence; they can be iterated repeatedly.

    Memory is 16 bytes per text, and three times that before the first one is yielded.
    """

    folder: Path
    columns: Mapping[Kind, tuple[str, ...]]
    """Columns that hold the texts, by kind."""
    most: int | None = None
    """Largest number of texts. Of more distinct texts, those with the smallest hashes are used, in any row order."""

    def __iter__(self) -> Iterator[str]:
        numbers = same_prompts(hashes_of(self._all()))
        first = np.zeros(len(numbers), dtype=bool)
        first[np.unique(numbers, return_index=True)[1]] = True
        if self.most is not None:
            first &= numbers < self.most  # each number is the rank of its hash among all distinct hashes
        yield from compress(self._all(), first)

    def _all(self) -> Iterator[str]:
        for kind, splits in available(self.folder).items():
            for piece in table_pieces(self.folder, kind, "train") if "train" in splits else ():
                for column in self.columns[kind]:
                    # the separator between the turns of an episode is not part of the text
                    yield from (str(text or "").replace(TURNS, "\n") for text in piece.column(column).to_pylist())

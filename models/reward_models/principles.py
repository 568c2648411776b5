"""A reward model that scores under a principle, a text before the prompt that each training chooses (SALMON, paper 90).

Source: SALMON, paper 90 (arXiv 2310.05910): pairs are ordered separately under each principle, and one reward model is
fitted to all of them with the principle before the prompt. The training of a policy selects the principle of its
scores.

    loss = mean over principles p and pairs of  -log sigmoid(score(p, x, better under p) - score(p, x, worse under p))

In the paper a language model orders the pairs. Here a rule does: as in the data, the shorter first, or the longer
first, by tokens. For two completions of equal length a length rule gives no order, and the pair is left out under its
principle.

`principles.json` in the model's folder names the principles. The first, which takes the pairs as in the data, is the
default, and is used in evaluations and reports.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Literal, overload

import numpy as np
from numpy.typing import NDArray
from pydantic import AfterValidator, Field
from torch import Tensor

from models.base.atomic_write import write_file
from models.base.errors import UserError
from models.learner.packing import Sequences
from models.reward_models.fit import Pair
from models.reward_models.settings_file import read_settings_file

FILE = "principles.json"
Rule = Literal["given", "shorter", "longer"]


def _first_is_given(principles: dict[str, Rule]) -> dict[str, Rule]:
    if blank := [text for text in principles if not text.strip()]:
        raise ValueError(f"{blank[0]!r} says nothing")
    if next(iter(principles.values())) != "given":
        raise ValueError("the first applies where none is named: it must be `given`, which takes the pairs as they are")
    return principles


Principles = Annotated[dict[str, Rule], Field(min_length=1), AfterValidator(_first_is_given)]
"""Text of each principle, and its rule for the better completion of a pair."""


class PrincipledPairs(Sequence[Pair]):
    """Pairs under several principles, principle by principle, with its tokens before those of the prompt."""

    def __init__(
        self,
        pairs: Sequence[Pair],
        prefixes: Sequence[Sequence[int]],
        number: NDArray[np.int64],
        row: NDArray[np.int64],
        turned: NDArray[np.bool_],
    ) -> None:
        self._pairs, self._prefixes = pairs, prefixes
        self.number = number
        """Index of the principle of each pair, [pairs under principles]."""
        self._row, self._turned = row, turned

    def __len__(self) -> int:
        return len(self._row)

    @overload
    def __getitem__(self, at: int) -> Pair: ...
    @overload
    def __getitem__(self, at: slice) -> PrincipledPairs: ...
    def __getitem__(self, at: int | slice) -> Pair | PrincipledPairs:
        if isinstance(at, slice):
            return PrincipledPairs(self._pairs, self._prefixes, self.number[at], self._row[at], self._turned[at])
        pair = self._pairs[int(self._row[at])]
        pair = replace(pair, prompt=(*self._prefixes[int(self.number[at])], *pair.prompt))
        return pair.turned() if self._turned[at] else pair


def under_principles(
    pairs: Sequence[Pair], prefixes: Sequence[Sequence[int]], rules: Sequence[Rule]
) -> PrincipledPairs:
    """Return every pair under every principle whose rule gives an order of its completions.

    Args:
        pairs: as in the data.
        prefixes: tokens of each principle.
        rules: rule of each principle for the better completion.
    """
    longer = np.array([len(pair.chosen) - len(pair.rejected) for pair in pairs], dtype=np.int64)
    numbers, rows, turned = [], [], []
    for number, rule in enumerate(rules):
        kept = np.arange(len(pairs)) if rule == "given" else longer.nonzero()[0]
        numbers.append(np.full(len(kept), number))
        rows.append(kept)
        turned.append(longer[kept] * {"given": 0, "shorter": 1, "longer": -1}[rule] > 0)
    return PrincipledPairs(pairs, prefixes, *(np.concatenate(part) for part in (numbers, rows, turned)))


@dataclass(frozen=True)
class PrincipledScorer:
    """A reward model with principles: called like any other, it scores by the first."""

    read: Callable[[Sequences], Tensor]
    prefixes: Mapping[str, Sequence[int]]
    """Tokens of each principle by its text; one or more."""

    def under(self, principle: str, sequences: Sequences) -> Tensor:
        """Return scores under a principle, [completions].

        Raises:
            UserError: the reward model does not have the principle.
        """
        if principle not in self.prefixes:
            raise UserError(f"the reward model knows no principle {principle!r}; it knows {', '.join(self.prefixes)}")
        prefix = self.prefixes[principle]
        return self.read(Sequences([(*prefix, *prompt) for prompt in sequences.prompts], sequences.completions))

    def __call__(self, sequences: Sequences) -> Tensor:
        """Return scores under the first principle, [completions]."""
        return self.under(next(iter(self.prefixes)), sequences)


def write_principles(folder: Path, principles: Mapping[str, Rule]) -> None:
    """Write the principles into the model's folder."""
    write_file(folder / FILE, json.dumps(principles, indent=1, ensure_ascii=False) + "\n")


def read_principles(folder: Path) -> list[str]:
    """Read the texts of a reward model's principles; an empty list if it has none.

    Raises:
        UserError: its file is not valid.
    """
    return list(read_settings_file(folder / FILE, Principles, "principles") or ())

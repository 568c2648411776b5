"""A reward model that goes by a principle, a text before the prompt that may be another in every training (SALMON).

Source: SALMON, paper 90 (arXiv 2310.05910): pairs are ordered anew under each principle, and one reward model is fitted
to all of them with the principle before the prompt; whoever trains a policy says by which it is scored.

    loss = mean over principles p and pairs of  -log sigmoid(score(p, x, better under p) - score(p, x, worse under p))

There a language model orders the pairs. Here a rule does: as the data have them, the shorter first, or the longer
first, by tokens; of two completions of one length such a rule says nothing, and the pair is left out under its
principle.

`principles.json` in the model's folder names the principles; the first, which takes the pairs as they are, is meant
where nobody names one, as in evaluations and reports.
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

from models.atomic_write import write_file
from models.errors import UserError
from models.learner.packing import Sequences
from models.reward_model.beside import read_beside
from models.reward_model.fit import Pair

FILE = "principles.json"
Rule = Literal["given", "shorter", "longer"]


def _first_is_given(principles: dict[str, Rule]) -> dict[str, Rule]:
    if blank := [text for text in principles if not text.strip()]:
        raise ValueError(f"{blank[0]!r} says nothing")
    if next(iter(principles.values())) != "given":
        raise ValueError("the first is meant where nobody names one: it takes the pairs as they are given")
    return principles


Principles = Annotated[dict[str, Rule], Field(min_length=1), AfterValidator(_first_is_given)]
"""Text of each principle, and which completion of a pair is the better one under it."""


class PrincipledPairs(Sequence[Pair]):
    """Pairs under each of several principles, one principle after the other, tokens of the principle before the
    prompt's."""

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
        """Which principle each goes by, [pairs under principles]."""
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
    """Every pair under every principle whose rule tells its completions apart.

    Args:
        pairs: as the data have them.
        prefixes: tokens of each principle.
        rules: what is better under each.
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
    """A reward model under principles: called as any other it goes by the first."""

    read: Callable[[Sequences], Tensor]
    prefixes: Mapping[str, Sequence[int]]
    """Tokens of each principle by its text; one or more."""

    def under(self, principle: str, sequences: Sequences) -> Tensor:
        """Scores by a principle, [completions].

        Raises:
            UserError: the reward model knows no such principle.
        """
        if principle not in self.prefixes:
            raise UserError(f"the reward model knows no principle {principle!r}; it knows {', '.join(self.prefixes)}")
        prefix = self.prefixes[principle]
        return self.read(Sequences([(*prefix, *prompt) for prompt in sequences.prompts], sequences.completions))

    def __call__(self, sequences: Sequences) -> Tensor:
        """Scores by the first principle, [completions]."""
        return self.under(next(iter(self.prefixes)), sequences)


def write_principles(folder: Path, principles: Mapping[str, Rule]) -> None:
    """Write into the model's folder what it goes by."""
    write_file(folder / FILE, json.dumps(principles, indent=1, ensure_ascii=False) + "\n")


def read_principles(folder: Path) -> list[str]:
    """Texts of the principles of a reward model; none where it goes by none.

    Raises:
        UserError: its file is none of ours.
    """
    return list(read_beside(folder / FILE, Principles, "principles") or ())

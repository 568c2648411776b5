"""A reward model of the gap between a completion and a reference (PIT, paper 70, arXiv 2310.00898).

    gap(y; y_ref) = score read behind  x, y_ref, y          how much better y is than y_ref as an answer to x
    of a preference of w over l, the mean of two pairs, each with the same reference on both sides:
        -log sigmoid(gap(w; l) - gap(l; l)) + anchor gap(l; l)^2
        -log sigmoid(gap(w; w) - gap(l; w)) + anchor gap(w; w)^2

The gap of a completion to itself is zero, so the anchors make gaps to different references comparable: what the two
pairs order comes to  gap(w; l) > gap(l; l) = 0 = gap(w; w) > gap(l; w),  the order that the paper asks for. As a policy
that improves an answer reads it in its prompt, the score of prompt and completion is the gap, and no other reward is
needed. Behind a prompt without a reference the score means nothing.

Both pairs can be ordered by whether a completion is the reference or not, and a small model learns no more than that.
Behind a reference that is neither of the two it cannot: `others` adds  -log sigmoid(gap(w; r) - gap(l; r)).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Literal, overload

from pydantic import Field, NonNegativeFloat

from models.loop.attempt import AGAIN
from models.reward_model.fit import Pair
from models.text.token_rows import TokenRows


@dataclass(frozen=True, kw_only=True)
class GapSettings:
    """What stands before a completion. Stands under `reward_model.gap:`."""

    context: Annotated[str, Field(pattern=r"\{told\}")] = AGAIN
    """`{prompt}` and `{told}` are replaced by the prompt and by the reference; that of `rollouts.context`."""
    anchor: NonNegativeFloat = 0.1
    """Weight of the squared gap of a completion to itself."""
    others: bool = False
    """Behind another answer to the prompt too, a demonstration of the data set."""


@dataclass(frozen=True)
class GapPair(Pair):
    """A preference read behind a reference."""

    reference: Literal["rejected", "chosen", "other"] = "rejected"
    """Which of them, or another answer."""
    anchor: float = 0.0

    @property
    def anchors(self) -> tuple[float, float]:
        """Weights of the squared scores of the two."""
        return (self.anchor * (self.reference == "chosen"), self.anchor * (self.reference == "rejected"))


REFERENCES: tuple[Literal["rejected", "chosen", "other"], ...] = ("rejected", "chosen", "other")
"""In the order in which a preference stands behind them."""


class GapRows(Sequence[Pair]):
    """Each preference behind one reference after the other, [references * pairs]."""

    def __init__(self, behind: Sequence[TokenRows], chosen: TokenRows, rejected: TokenRows, *, anchor: float) -> None:
        """Hold what is given.

        Args:
            behind: contexts with each of the REFERENCES, or the first of them, [references] of [pairs].
            chosen: completions, [pairs].
            rejected: the same.
            anchor: weight of the squared gap of a completion to itself.
        """
        self._contexts, self._answers, self._anchor = tuple(behind), (chosen, rejected), anchor

    def __len__(self) -> int:
        return len(self._contexts) * len(self._answers[0])

    @overload
    def __getitem__(self, at: int) -> Pair: ...
    @overload
    def __getitem__(self, at: slice) -> Sequence[Pair]: ...
    def __getitem__(self, at: int | slice) -> Pair | Sequence[Pair]:
        if isinstance(at, slice):
            return [self[number] for number in range(len(self))[at]]
        pair, side = divmod(range(len(self))[at], len(self._contexts))
        chosen, rejected = (rows[pair] for rows in self._answers)
        context = self._contexts[side][pair]
        return GapPair(context, chosen, rejected, reference=REFERENCES[side], anchor=self._anchor)

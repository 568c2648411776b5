"""A reward model of the gap between a completion and a reference (PIT, paper 70, arXiv 2310.00898).

    gap(y; y_ref) = score read after  x, y_ref, y          how much better y is than y_ref as an answer to x
    loss of a preference of w over l, the mean of two pairs, each with the same reference on both sides:
        -log sigmoid(gap(w; l) - gap(l; l)) + anchor gap(l; l)^2
        -log sigmoid(gap(w; w) - gap(l; w)) + anchor gap(w; w)^2

The gap of a completion to itself is zero, so the anchors make gaps to different references comparable: the two pairs
give the order  gap(w; l) > gap(l; l) = 0 = gap(w; w) > gap(l; w)  of the paper. A policy that improves an answer reads
it in its prompt, so the score of prompt and completion is the gap, and no other reward is needed. After a prompt
without a reference the score is meaningless.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Literal, overload

from pydantic import Field, NonNegativeFloat

from models.method.attempt import AGAIN
from models.reward_models.fit import Pair
from models.text.token_rows import TokenRows


@dataclass(frozen=True, kw_only=True)
class GapSettings:
    """Context of a completion and weight of the anchor. Section `reward_model.gap:`."""

    context: Annotated[str, Field(pattern=r"\{shown\}")] = AGAIN
    """Template in which `{prompt}` and `{shown}` are replaced by the prompt and by the reference; that of
    `rollouts.context`."""
    anchor: NonNegativeFloat = 0.1
    """Weight of the squared gap of a completion to itself."""


@dataclass(frozen=True)
class GapPair(Pair):
    """A preference read after one of its own completions as the reference."""

    reference: Literal["chosen", "rejected"] = "rejected"
    """The completion that is the reference."""
    anchor: float = 0.0

    @property
    def anchors(self) -> tuple[float, float]:
        """Weights of the squared scores of the two."""
        return (self.anchor, 0.0) if self.reference == "chosen" else (0.0, self.anchor)


class GapRows(Sequence[Pair]):
    """Each preference twice, after the rejected and after the chosen completion, [2 * pairs]."""

    def __init__(
        self,
        after_rejected: TokenRows,
        after_chosen: TokenRows,
        chosen: TokenRows,
        rejected: TokenRows,
        *,
        anchor: float,
    ) -> None:
        self._contexts, self._answers, self._anchor = (after_rejected, after_chosen), (chosen, rejected), anchor

    def __len__(self) -> int:
        return 2 * len(self._answers[0])

    @overload
    def __getitem__(self, at: int) -> Pair: ...
    @overload
    def __getitem__(self, at: slice) -> Sequence[Pair]: ...
    def __getitem__(self, at: int | slice) -> Pair | Sequence[Pair]:
        if isinstance(at, slice):
            return [self[number] for number in range(len(self))[at]]
        pair, side = divmod(range(len(self))[at], 2)
        chosen, rejected = (rows[pair] for rows in self._answers)
        reference: Literal["chosen", "rejected"] = "chosen" if side else "rejected"
        return GapPair(self._contexts[side][pair], chosen, rejected, reference=reference, anchor=self._anchor)

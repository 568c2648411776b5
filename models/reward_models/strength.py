"""Preference strength from several reward models, and pairs corrected by it (paper 205, arXiv 2401.06080).

    strength s_i = mean over members of  score(chosen_i) - score(rejected_i)

Members are fitted to the pairs themselves, each with a seed of its own. Pairs of the least strength, far below zero,
mostly have the wrong label: at most the share `flipped` of all pairs is swapped, only those below zero. For the others
the strength measures how much better the chosen completion is, and so the required margin of its score:

    loss of a pair = -log sigmoid(score(chosen) - score(rejected) - max(s_i, 0))            adaptive margin
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated, overload

import numpy as np
from numpy.typing import NDArray
from pydantic import Field
from torch import Tensor

from models.base.bounds import Share
from models.reward_models.fit import Pair


@dataclass(frozen=True, kw_only=True)
class StrengthSettings:
    """Members that judge the pairs, and use of the strengths. Section `reward_model.strength:`."""

    members: Annotated[int, Field(ge=2)] = 4
    """Number of reward models that judge; none of them is kept."""
    flipped: Share = 0.1
    """Maximum share of the pairs that is swapped: those of least strength, if it is below zero."""
    adaptive_margin: bool = True
    """Whether a pair's strength is the margin that its scores should have."""


class JudgedPairs(Sequence[Pair]):
    """Pairs of which some are swapped and each may have a margin of its own."""

    def __init__(self, pairs: Sequence[Pair], flipped: NDArray[np.bool_], margins: NDArray[np.float64]) -> None:
        self._pairs, self._margins = pairs, margins
        self.flipped = flipped
        """Whether each pair is swapped, [pairs]."""

    def __len__(self) -> int:
        return len(self._pairs)

    @overload
    def __getitem__(self, at: int) -> Pair: ...
    @overload
    def __getitem__(self, at: slice) -> JudgedPairs: ...
    def __getitem__(self, at: int | slice) -> Pair | JudgedPairs:
        if isinstance(at, slice):
            return JudgedPairs(self._pairs[at], self.flipped[at], self._margins[at])
        pair = replace(self._pairs[at], margin=float(self._margins[at]))
        return pair.turned() if self.flipped[at] else pair


def strength_of(margins: Tensor) -> NDArray[np.float64]:
    """Compute the strength of each pair from the members' margins, [members, pairs] -> [pairs]."""
    return np.asarray(margins.double().mean(0).numpy(), dtype=np.float64)


def judged_pairs(pairs: Sequence[Pair], strength: NDArray[np.float64], settings: StrengthSettings) -> JudgedPairs:
    """Correct the pairs by their strength, [pairs]; of equal strengths the first is swapped first."""
    flipped = np.zeros(len(pairs), dtype=np.bool_)
    weakest = np.argsort(strength, kind="stable")[: int(settings.flipped * len(pairs))]
    flipped[weakest] = strength[weakest] < 0
    margins = np.where(flipped, -strength, np.maximum(strength, 0.0))  # swapped, it is as strong the other way
    return JudgedPairs(pairs, flipped, margins if settings.adaptive_margin else np.zeros(len(pairs)))

"""An error budget over time: how much of it each look at one gate split may spend.

Every night a candidate is held against the champion on the same problems. At equal quality each look promotes falsely
with probability alpha of that look at most, so all of them together with the sum of the alphas at most, however the
looks depend on each other. The sum is `error_budget`; after k looks a part sqrt(k / looks) of it is spent:

    alpha_k = error_budget * (sqrt(k) - sqrt(k - 1)) / sqrt(looks)

The first looks get more, as there is more to find; the last of 365 still gets half of an even share.
"""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True)
class Look:
    """One look at a gate split."""

    number: int
    """From 1."""
    of: int
    """Looks that the budget is meant for."""
    alpha: float
    """What this look may spend; 0 where nothing is left."""
    budget: float
    spent: float
    """All looks until now, this one included."""

    @property
    def left(self) -> float:
        """What later looks may spend."""
        return max(0.0, self.budget - self.spent)

    def __str__(self) -> str:
        return (
            f"look {self.number} of {self.of} at these problems, at level {self.alpha:.2g}; "
            f"{self.spent:.2%} of the error budget of {self.budget:.0%} is spent, {self.left:.2%} is left"
        )


def next_look(looked: int, spent: float, *, budget: float, looks: int) -> Look:
    """The look after `looked` others that spent `spent`; never more than what is left.

    Args:
        looked: looks until now.
        spent: the sum of their alphas, whatever settings they had.
        budget: probability of any false promotion over all looks.
        looks: number that the budget is divided over; the looks after them get nothing.
    """
    number = looked + 1
    share = (math.sqrt(number) - math.sqrt(looked)) / math.sqrt(looks) if number <= looks else 0.0
    alpha = min(budget * share, max(0.0, budget - spent))
    return Look(number, looks, alpha, budget, spent + alpha)

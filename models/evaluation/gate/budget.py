"""An error budget over time: the share of it that each look at one gate split may spend.

Every night a candidate is compared with the champion on the same problems. At equal quality, each look makes a false
promotion with probability at most its alpha. All looks together therefore make one with at most the sum of the alphas,
however the looks depend on each other. The sum is `error_budget`; after k looks a part sqrt(k / looks) of it is spent:

    alpha_k = error_budget * (sqrt(k) - sqrt(k - 1)) / sqrt(looks)

The first looks get more, because more can be found then; the last of 365 still gets half of an even share.
"""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True)
class Look:
    """One look at a gate split."""

    number: int
    """Number of the look, from 1."""
    of: int
    """Number of looks that the budget is meant for."""
    alpha: float
    """Error probability that this look may spend; 0 if nothing is left."""
    budget: float
    spent: float
    """Spent by all looks until now, this one included."""

    @property
    def left(self) -> float:
        """Budget that later looks may spend."""
        return max(0.0, self.budget - self.spent)

    def __str__(self) -> str:
        return (
            f"look {self.number} of {self.of} at these problems, at level {self.alpha:.2g}; "
            f"{self.spent:.2%} of the error budget of {self.budget:.0%} is spent, {self.left:.2%} is left"
        )


def next_look(looked: int, spent: float, *, budget: float, looks: int) -> Look:
    """Return the look after `looked` others that spent `spent`; it never spends more than is left.

    Args:
        looked: number of looks until now.
        spent: sum of their alphas, whatever settings they had.
        budget: probability of any false promotion over all looks.
        looks: number of looks that the budget is divided over; later looks get nothing.
    """
    number = looked + 1
    share = (math.sqrt(number) - math.sqrt(looked)) / math.sqrt(looks) if number <= looks else 0.0
    alpha = min(budget * share, max(0.0, budget - spent))
    return Look(number, looks, alpha, budget, spent + alpha)

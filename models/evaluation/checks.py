"""A condition of the gate, and how a guard is held against its margin."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np

from models.evaluation.changes import Change, share_change
from models.evaluation.measured import Values

State = Literal["passed", "failed", "not_applicable"]
Side = Literal[1, -1]
"""1 where more is worse, -1 where less is."""

_ROUNDING = 1e-9
"""A bound equal to its margin holds in spite of the rounding of its computation."""


@dataclass(frozen=True)
class Check:
    """One condition of the gate."""

    name: str
    state: State
    value: float
    """The number that is held against the bound, the end of its interval on the worse side; NaN where there is none."""
    bound: float
    detail: str
    """The check in one line, for a person."""

    @property
    def failed(self) -> bool:
        """Whether it stands against the candidate."""
        return self.state == "failed"


def bounded(
    name: str,
    arrays: Mapping[str, Values],
    change: Callable[[], Change],
    limit: float,
    side: Side,
    confidence: float,
    whom: str,
    undefined: str = "",
) -> Check:
    """A guard: the bound of a change, on its worse side, must not lie past a limit.

    Args:
        name: of the check.
        arrays: what is compared, by what it is called; a number among it that is not finite fails the check.
        change: the change, asked for only where all numbers are finite.
        limit: what the bound is held against.
        side: where the worse side is.
        confidence: of the bound, one-sided.
        whom: what the change is against, in words.
        undefined: why the change is not defined; "" where it is.
    """
    broken = next((said for what, values in arrays.items() if (said := not_finite(what, values))), "")
    if broken or undefined:
        state: State = "failed" if broken else "not_applicable"
        return Check(name, state, math.nan, limit, broken or undefined)
    difference = change()
    bound = difference.bound(confidence, side)
    kept = bound <= limit + _ROUNDING if side > 0 else bound >= limit - _ROUNDING
    words = "at most" if side > 0 else "at least"
    detail = (
        f"against {whom} {difference.estimate:+.4f}, {words} {bound:+.4f} with {confidence:.0%} confidence; "
        f"must be {words} {limit:+.4f}"
        if math.isfinite(bound)
        else f"against {whom}: {difference.estimate} with a bound of {bound} is no finite number"
    )
    return Check(name, "passed" if kept and math.isfinite(bound) else "failed", bound, limit, detail)


def share_kept(name: str, metric: str, new: Values, old: Values, margin: float, confidence: float, whom: str) -> Check:
    """The guard of a share that may fall by a margin at most.

    Args:
        name: of the check.
        metric: what the share is called.
        new: the candidate's, [prompts].
        old: that of what it is held against, [prompts].
        margin: how much it may fall.
        confidence: of the bound, one-sided.
        whom: what the candidate is held against, in words.
    """
    left, right = both(new, old)
    arrays = {f"{metric} of the candidate": left, f"{metric} of the other": right}
    return bounded(name, arrays, lambda: share_change(left, right, confidence, -1), -margin, -1, confidence, whom)


def both(left: Values, right: Values) -> tuple[Values, Values]:
    """Without the prompts that the metric leaves out on both sides."""
    kept = ~(np.isnan(left) & np.isnan(right))
    return left[kept], right[kept]


def not_finite(what: str, values: Values) -> str:
    """What is wrong with numbers that must all be finite; "" where they are."""
    wrong = values.size - int(np.isfinite(values).sum())
    if values.size == 0:
        return f"there is no {what}"
    return f"{wrong:,} of {values.size:,} numbers ({what}) are missing or not finite" if wrong else ""

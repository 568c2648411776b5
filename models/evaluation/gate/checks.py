"""Conditions of the gate, and the comparison of a guard with its margin."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np

from models.evaluation.gate.changes import Change, mean_change, share_change
from models.evaluation.measured import Values

State = Literal["passed", "failed", "not_applicable"]
Side = Literal[1, -1]
"""1 if a higher value is worse, -1 if a lower value is worse."""

_ROUNDING = 1e-9
"""Tolerance for rounding: a bound equal to its margin passes."""


@dataclass(frozen=True)
class GateCheck:
    """One condition of the gate."""

    name: str
    state: State
    value: float
    """The number that is compared with the bound, the end of its interval on the worse side; NaN if there is none."""
    bound: float
    detail: str
    """One-line description of the check for readers."""

    @property
    def failed(self) -> bool:
        """Whether the check failed."""
        return self.state == "failed"


def bounded(
    name: str,
    arrays: Mapping[str, Values],
    change: Callable[[], Change],
    limit: float,
    side: Side,
    confidence: float,
    baseline_name: str,
    undefined: str = "",
) -> GateCheck:
    """Check that the bound of a change, on its worse side, is not past a limit.

    Args:
        name: name of the check.
        arrays: description -> compared numbers; a number that is not finite fails the check.
        change: computes the change; called only if all numbers are finite.
        limit: limit of the bound.
        side: direction of the worse side.
        confidence: confidence of the bound, one-sided.
        baseline_name: description of the baseline of the change.
        undefined: why the change is not defined; "" if it is defined.
    """
    broken = next((error for what, values in arrays.items() if (error := not_finite(what, values))), "")
    if broken or undefined:
        state: State = "failed" if broken else "not_applicable"
        return GateCheck(name, state, math.nan, limit, broken or undefined)
    difference = change()
    bound = difference.bound(confidence, side)
    kept = bound <= limit + _ROUNDING if side > 0 else bound >= limit - _ROUNDING
    words = "at most" if side > 0 else "at least"
    detail = (
        f"against {baseline_name} {difference.estimate:+.4f}, {words} {bound:+.4f} with {confidence:.0%} confidence; "
        f"must be {words} {limit:+.4f}"
        if math.isfinite(bound)
        else f"against {baseline_name}: {difference.estimate} with a bound of {bound} is not a finite number"
    )
    return GateCheck(name, "passed" if kept and math.isfinite(bound) else "failed", bound, limit, detail)


def share_kept(
    name: str, metric: str, new: Values, old: Values, margin: float, confidence: float, baseline_name: str
) -> GateCheck:
    """Check that a share fell by a margin at most.

    Args:
        name: name of the check.
        metric: name of the share.
        new: share of the candidate, [prompts].
        old: share of the model that it is compared with, [prompts].
        margin: largest allowed fall.
        confidence: confidence of the bound, one-sided.
        baseline_name: description of the model that the candidate is compared with.
    """
    left, right = without_left_out(new, old)
    arrays = {f"{metric} of the candidate": left, f"{metric} of the other": right}
    return bounded(
        name, arrays, lambda: share_change(left, right, confidence, -1), -margin, -1, confidence, baseline_name
    )


def blind_control(name: str, seen: Values, blind: Values, confidence: float, baseline_name: str) -> GateCheck:
    """Check that a candidate gains more with the pictures of its problems than with others.

    Args:
        name: name of the check.
        seen: gain on each problem with its own picture, [prompts].
        blind: gain on the same problem with another picture, [prompts].
        confidence: confidence of the bound, one-sided.
        baseline_name: description of the model that the gains are over.
    """
    arrays = {"gains with the own pictures": seen, "gains with other pictures": blind}
    return bounded(name, arrays, lambda: mean_change(seen, blind), 0.0, -1, confidence, baseline_name)


def without_left_out(left: Values, right: Values) -> tuple[Values, Values]:
    """Return both arrays without the prompts that the metric leaves out on both sides."""
    kept = ~(np.isnan(left) & np.isnan(right))
    return left[kept], right[kept]


def not_finite(what: str, values: Values) -> str:
    """Return an error text for numbers that must all be finite; "" if they are."""
    wrong = values.size - int(np.isfinite(values).sum())
    if values.size == 0:
        return f"there is no {what}"
    return f"{wrong:,} of {values.size:,} numbers ({what}) are missing or not finite" if wrong else ""

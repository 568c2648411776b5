"""Reliability of a reward model: accuracy on held-out pairs, overall and by kind of flaw, and calibration.

Accuracy: the share of pairs whose chosen completion scores higher; an exact tie counts half.

A model is calibrated if sigmoid(margin) is the share of cases in which the first completion of a pair is the better
one. With the chosen one always first, the outcome would be 1 in every bin and the measure meaningless. So each pair is
used in both orders: (sigmoid(m), 1) and (sigmoid(-m), 0). The two orders are mirror images through (1/2, 1/2), so it
suffices to keep the one with probability >= 1/2: its probability is the model's confidence, and its outcome is whether
the model ranks the pair correctly. Bins are equal in width over [1/2, 1].

    ECE = sum over bins of (share of pairs in the bin) * |mean confidence - accuracy|      (Guo et al. 2017)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from models.base.errors import UserError
from models.evaluation.bootstrap import Interval, wilson


@dataclass(frozen=True)
class ReliabilityBin:
    """Pairs that the model ranks with a confidence in (low, high]; the lowest bin includes its low edge."""

    low: float
    high: float
    pairs: int
    confidence: float
    """Mean of sigmoid(|margin|)."""
    accuracy: float


@dataclass(frozen=True)
class PairReport:
    """Accuracy and calibration of a reward model on held-out pairs."""

    pairs: int
    accuracy: Interval
    """Accuracy with Wilson's interval, by default at 95 %."""
    calibration_error: float
    """Expected calibration error (ECE), 0 to 1."""
    log_loss: float
    """Mean of -log sigmoid(margin), nats; log 2 = 0.693 is chance."""
    curve: tuple[ReliabilityBin, ...]
    """Non-empty bins, by rising confidence."""
    by_flaw: dict[str, Interval]
    """Accuracy by kind of flaw of the rejected completion."""
    pairs_by_flaw: dict[str, int]

    def metrics(self) -> dict[str, float]:
        """Return the report's numbers by name, flat."""
        return {
            "pair_accuracy": self.accuracy.estimate,
            "pair_accuracy_low": self.accuracy.low,
            "pair_accuracy_high": self.accuracy.high,
            "calibration_error": self.calibration_error,
            "log_loss": self.log_loss,
            **{f"accuracy_{flaw}": interval.estimate for flaw, interval in self.by_flaw.items()},
        }


def pair_report(
    margins: ArrayLike, flaws: Sequence[str] = (), *, bins: int = 10, confidence: float = 0.95
) -> PairReport:
    """Compute accuracy, calibration and accuracy by flaw of a reward model.

    Args:
        margins: score of chosen minus score of rejected, [pairs].
        flaws: kind of flaw of each rejected completion, [pairs], "" if unknown; empty if none is known.
        bins: bins of the reliability curve.

    Raises:
        UserError: `margins` is empty, or a margin is not finite.
    """
    margin = np.asarray(margins, dtype=np.float64).reshape(-1)
    if margin.size == 0:
        raise UserError("reward_model: no held-out pairs to judge it on")
    if not np.isfinite(margin).all():
        raise UserError(f"reward_model: the margin of pair {int(np.argmin(np.isfinite(margin)))} is not finite")
    if flaws and len(flaws) != margin.size:
        raise UserError(f"reward_model: {len(flaws)} flaws for {margin.size} pairs")
    right = (margin > 0) + 0.5 * (margin == 0)
    sure = 1.0 / (1.0 + np.exp(-np.abs(margin)))
    place = np.clip(np.ceil((sure - 0.5) * 2 * bins).astype(int) - 1, 0, bins - 1)
    curve = tuple(
        ReliabilityBin(
            low=0.5 + 0.5 * index / bins,
            high=0.5 + 0.5 * (index + 1) / bins,
            pairs=int((place == index).sum()),
            confidence=float(sure[place == index].mean()),
            accuracy=float(right[place == index].mean()),
        )
        for index in range(bins)
        if (place == index).any()
    )
    kinds = np.asarray(flaws, dtype=object)
    named = sorted({flaw for flaw in flaws if flaw})
    return PairReport(
        pairs=int(margin.size),
        accuracy=wilson(float(right.sum()), int(margin.size), confidence=confidence),
        calibration_error=float(sum(b.pairs * abs(b.confidence - b.accuracy) for b in curve) / margin.size),
        log_loss=float(np.logaddexp(0.0, -margin).mean()),
        curve=curve,
        by_flaw={
            flaw: wilson(float(right[kinds == flaw].sum()), int((kinds == flaw).sum()), confidence=confidence)
            for flaw in named
        },
        pairs_by_flaw={flaw: int((kinds == flaw).sum()) for flaw in named},
    )

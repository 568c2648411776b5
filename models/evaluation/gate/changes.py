"""Change of a policy against another on the same prompts, with the standard error of the change.

Prompts are the unit, because the samples of one prompt are not independent. Each change is a function of means over
prompts. Its error is that of its linear part, the influence of each prompt (the delta method; for the area under the
curve the placements of DeLong et al. 1988, summed over the samples of a prompt as in Obuchowski 1997). Both sides have
the same prompts, so the difficulty of the prompts cancels out.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

Values = NDArray[np.float64]

LEAST_PROMPTS = 5
"""Number of prompts with a right sample, and with a wrong sample, below which scores cannot separate the two."""


@dataclass(frozen=True)
class Change:
    """An estimate and its standard error."""

    estimate: float
    error: float
    prompts: int

    def bound(self, confidence: float, side: int) -> float:
        """Return the one-sided bound: above the estimate if `side` is 1, below it if `side` is -1."""
        return self.estimate + side * _quantile(confidence, self.prompts) * self.error


def mean_change(new: Values, old: Values) -> Change:
    """Compute mean(new - old), [prompts] each."""
    differences = new - old
    return Change(float(differences.mean()), _error(differences), differences.size)


def share_change(new: Values, old: Values, confidence: float, side: int) -> Change:
    """Compute `mean_change` of shares with a one-sided bound that keeps its confidence even if few prompts differ.

    The deviation is a poor estimate for rare events: with five expected, none or one is seen often, and the bound is
    then too close. The bound is therefore that of one prompt more, which changed wholly to this side (a prompt more on
    both sides makes Bonett & Price's adjusted interval for paired shares, 2012). It is also no closer to the estimate
    than that of a share which was never seen in n prompts, the rule of three. A share that only got worse has no better
    bound than one that did not change.

    Args:
        new: [prompts], each within [0, 1].
        old: as `new`.
        confidence: confidence of the bound, one-sided.
        side: side of the bound: above where it is 1, below where it is -1.

    Returns:
        The change, with the error that gives this bound.
    """
    differences = new - old
    estimate, prompts = float(differences.mean()), differences.size
    added = np.append(differences, float(side))
    of_more = Change(float(added.mean()), _error(added), prompts)
    farthest = max(abs(of_more.bound(confidence, side) - estimate), -math.log(1 - confidence) / prompts)
    return Change(estimate, farthest / max(1e-9, _quantile(confidence, prompts)), prompts)


def ratio(new: Values, old: Values) -> Change:
    """Compute mean(new) / mean(old); NaN if the old mean is 0."""
    if old.mean() == 0:
        return Change(math.nan, math.nan, new.size)
    value = float(new.mean() / old.mean())
    return Change(value, _error((new - value * old) / float(old.mean())), new.size)


def divergence_change(new_scores: Values, new_correct: Values, old_scores: Values, old_correct: Values) -> Change:
    """Compute the rise of 1 - AUC of the scores as a test of correctness, all [prompts, samples]."""
    new, new_influence = _auc(new_scores, new_correct)
    old, old_influence = _auc(old_scores, old_correct)
    prompts = len(new_scores)
    return Change(old - new, _error((new_influence - old_influence) * prompts), prompts)


def gap_change(new_scores: Values, new_correct: Values, old_scores: Values, old_correct: Values) -> Change:
    """Compute how much more the score rose than the truth, each in standard deviations of the old samples:

        (mean score new - old) / sd(score old) - (accuracy new - old) / sd(correct old)

    Far above 0, the policy was rewarded for something other than correctness.
    """
    rise, rise_influence = _standardised(new_scores, old_scores)
    truth, truth_influence = _standardised(new_correct, old_correct)
    return Change(rise - truth, _error(rise_influence - truth_influence), len(new_scores))


def too_few(correct: Values) -> str:
    """Return the reason why right and wrong samples, [prompts, samples], cannot be compared; "" if they can."""
    right, wrong = int((correct > 0).any(axis=1).sum()), int((correct < 1).any(axis=1).sum())
    for what, count in (("wrong", wrong), ("right", right)):
        if count < LEAST_PROMPTS:
            return f"{count} of {len(correct)} prompts have a {what} sample, too few to compare right with wrong"
    return ""


def _quantile(confidence: float, prompts: int) -> float:
    """Return Student's t quantile for the mean of `prompts` values, by its expansion."""
    z = NormalDist().inv_cdf(confidence)
    return z + (z**3 + z) / (4 * max(1, prompts - 1))


def _error(influence: Values) -> float:
    """Return the standard error of the mean of values that represent one prompt each."""
    return float(influence.std(ddof=1)) / math.sqrt(influence.size) if influence.size > 1 else math.inf


def _auc(scores: Values, correct: Values) -> tuple[float, Values]:
    """Return the probability that a right sample beats a wrong one, and the influence of each prompt on it, [prompts].

    Ties count half.
    """
    is_right = correct.ravel() > 0
    flat = scores.ravel()
    right, wrong = np.sort(flat[is_right]), np.sort(flat[~is_right])
    placed = np.empty_like(flat)
    for of, among, sign in ((is_right, wrong, 1.0), (~is_right, right, -1.0)):
        below = (np.searchsorted(among, flat[of], "left") + np.searchsorted(among, flat[of], "right")) / 2 / among.size
        placed[of] = below if sign > 0 else 1.0 - below
    value = float(placed[is_right].mean())
    weight = np.where(is_right, 1.0 / right.size, 1.0 / wrong.size)
    return value, ((placed - value) * weight).reshape(scores.shape).sum(axis=1)


def _standardised(new: Values, old: Values) -> tuple[float, Values]:
    """Return (mean(new) - mean(old)) / deviation(old) and the influence of each prompt on it, [prompts]."""
    mean, deviation = float(old.mean()), float(old.std())
    if deviation == 0.0:
        return math.nan, np.full(len(new), math.nan)
    change = (float(new.mean()) - mean) / deviation
    of_means = (new.mean(axis=1) - new.mean()) - (old.mean(axis=1) - mean)
    of_deviation = (((old - mean) ** 2).mean(axis=1) - deviation**2) / (2 * deviation)
    return change, (of_means - change * of_deviation) / deviation

"""Evidence that the mean of paired differences is above zero, exact for any number of prompts, far into the tail.

A bet on each difference d in [-1, 1] multiplies a stake by 1 + lam * d. If the differences are independent and their
mean, over all of them, is at most zero, the stake is expected to end at no more than it began with:

    E prod (1 + lam d_i) = prod (1 + lam E d_i) <= (1 + lam mean_i E d_i)^n <= 1

This holds for any distributions, and also if prompts of several levels differ in their means (the first step is
independence, the second the inequality of the means). It also holds for the mean over a fixed grid of bets, the
e-value. By Markov's inequality, the e-value reaches 1 / alpha with probability alpha at most. No distribution is
assumed and nothing is resampled, so the test holds at the small alphas that many looks need, where a t test or a
bootstrap do not. (Estimating means of bounded random variables by betting, Waudby-Smith & Ramdas 2023, arXiv
2010.09686.)
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

Values = NDArray[np.float64]

BETS = np.linspace(0.04, 0.96, 24)
"""Bets, fixed before the data are seen: a bet that depended on the data would need an order of the prompts."""

QUANTILE_80 = 0.8416
"""80 % quantile of the standard normal distribution."""


def log_e_value(differences: Values, repeats: float = 1.0) -> float:
    """Return the natural logarithm of the e-value against "the mean is at most zero".

    Args:
        differences: [prompts], each within [-1, 1].
        repeats: number of prompts that each difference represents.
    """
    logs = repeats * np.log1p(np.outer(BETS, differences)).sum(axis=1)
    most = float(logs.max())
    return most + math.log(float(np.exp(logs - most).mean()))


def detectable_difference(differences: Values, alpha: float) -> float:
    """Return the smallest true difference that the test would find with 80 % power; infinite if there is none.

    The observed differences, shifted to that mean and 0.84 of its standard errors down, must be sufficient evidence.

    Args:
        differences: [prompts]; only their spread is used, not their mean.
        alpha: level of the test.
    """
    if alpha <= 0.0 or differences.size < 2:
        return math.inf
    centred = differences - differences.mean()
    unlucky = QUANTILE_80 * float(centred.std(ddof=1)) / math.sqrt(centred.size)
    enough = -math.log(alpha)

    def seen(difference: float) -> bool:
        return log_e_value(np.clip(centred + (difference - unlucky), -1.0, 1.0)) >= enough

    low, high = 0.0, 1.0
    if not seen(high):
        return math.inf
    for _ in range(12):
        middle = (low + high) / 2
        low, high = (low, middle) if seen(middle) else (middle, high)
    return high


def is_findable(spread: float, difference: float) -> bool:
    """Return whether any number of problems suffices to find a true difference.

    For a difference below about 0.02 times the square of the spread, even the smallest bet is too large: its stake
    falls on average.

    Args:
        spread: deviation of the paired differences over problems, as in `problems_needed`.
        difference: true difference to find, within (0, 1).
    """
    sides = np.clip(np.array([difference - spread, difference + spread]), -1.0, 1.0)
    return bool(np.log1p(np.outer(BETS, sides)).mean(axis=1).max() > 0)


def problems_needed(spread: float, difference: float, alpha: float) -> int:
    """Return the number of problems with which a true difference is found with 80 % power.

    Args:
        spread: deviation of the paired differences over problems; half of them are this far above their mean, half
            below.
        difference: true difference to find, within (0, 1); `is_findable` must hold.
        alpha: level of the test.
    """

    def seen(problems: int) -> bool:
        middle = difference - QUANTILE_80 * spread / math.sqrt(problems)
        sides = np.clip(np.array([middle - spread, middle + spread]), -1.0, 1.0)
        return log_e_value(sides, problems / 2) >= -math.log(alpha)

    low, high = 1, 2
    while not seen(high):
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if seen(middle) else (middle, high)
    return high


def spread_of_differences(correct: Values, samples: int, own: float) -> float:
    """Return the deviation over problems of the paired differences of two policies of equal quality.

    Args:
        correct: 0 or 1 for each sample of one policy, [prompts, samples of the evaluation], two or more per prompt.
        samples: samples per problem in the comparison.
        own: assumed deviation of the true difference of two policies on one problem.
    """
    drawn = correct.shape[1]
    right = correct.mean(axis=1)
    within = float((right * (1 - right)).mean()) * drawn / (drawn - 1)  # unbiased p (1 - p)
    return math.sqrt(2 * within / samples + own**2)

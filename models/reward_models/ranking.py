"""Ranking quality of a reward model on a policy's samples, compared with the truth, prompt by prompt.

    separation         P(score of a right sample > score of a wrong one of the same prompt), ties half: basis of group
                       advantages; 0.5 is chance
    one against many   share of prompts with a right and a wrong sample whose best-scored right one is above every wrong
                       one (RewardBench 2; the hardest wrong answer decides)
    one against n      one right sample and n wrong ones of the same prompt are drawn without replacement (RewardMATH,
                       paper 330, with n = 9): the probability that the right one is first, and its expected reciprocal
                       rank. With one wrong answer, as in RewardBench, the first is the separation
    best of n          truth of the sample of highest score among n drawn without replacement, in closed form: with
                       scores in order, rank i (from 1) of N is the best of n with probability C(i-1, n-1) / C(N, n)
    rank correlation   Spearman's, of the mean score of a prompt's samples with the share that is right

    agreement          share of pairs of a prompt's samples that two judges order alike, a tie of either half: fits with
                       several seeds that disagree on a policy's samples have learned noise

Equal scores share the probabilities of their ranks. A prompt is left out of a measure that is not defined for it,
because all of its samples are right or all are wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import comb

import numpy as np
from numpy.typing import ArrayLike, NDArray

from models.base.errors import UserError

Values = NDArray[np.float64]


def separation(scores: ArrayLike, right: ArrayLike) -> Values:
    """Compute P(a right sample scores above a wrong one) of each prompt, [prompts, N] -> [prompts].

    It is NaN for a prompt without such a pair.

    Raises:
        UserError: see `best_of_n`.
    """
    return _by_prompt(scores, right, _separation)


def one_against_many(scores: ArrayLike, right: ArrayLike) -> Values:
    """Return whether the best right sample is above every wrong one, [prompts, N] -> [prompts] of 0, 0.5 (a tie) and 1.

    It is NaN if a prompt has no pair.

    Raises:
        UserError: see `best_of_n`.
    """
    return _by_prompt(scores, right, _above_all)


@dataclass(frozen=True)
class OneAgainst:
    """One right sample among n wrong ones, each [prompts]; NaN for a prompt without a right one or n wrong ones."""

    first: Values
    """Probability that the right sample has the highest score."""
    reciprocal_rank: Values
    """Expected value of 1 / rank of the right sample among the n + 1."""


def one_against(scores: ArrayLike, right: ArrayLike, wrong: int) -> OneAgainst:
    """Compare a right sample with `wrong` wrong ones of its prompt, in expectation over all such draws.

    The number of drawn wrong samples above the right one is hypergeometric. Equal scores are in random order;
    RewardMATH's code counts a tie as lost, so that coarse scores are worth more here.

    Args:
        scores: scores of every sample, [prompts, N].
        right: 1 for a right sample and 0 for a wrong one, [prompts, N].
        wrong: number of wrong samples that are drawn, 1 or more.

    Raises:
        UserError: see `best_of_n`; or `wrong` is below 1.
    """
    if wrong < 1:
        raise UserError(f"reward report: a right sample needs a wrong one to compare with, not {wrong}")
    first = _by_prompt(scores, right, lambda own, other: _expected(own, other, wrong, lambda rank: float(rank == 1)))
    ranks = _by_prompt(scores, right, lambda own, other: _expected(own, other, wrong, lambda rank: 1 / rank))
    return OneAgainst(first, ranks)


def best_of_n(scores: ArrayLike, truth: ArrayLike, n: int) -> Values:
    """Compute the expected truth of the best of `n` samples by score, [prompts, N] -> [prompts].

    Args:
        scores: scores of every sample, [prompts, N].
        truth: true value of each, [prompts, N].
        n: number of samples that the best is chosen from, 1 to N.

    Raises:
        UserError: the two differ in shape, a score is not finite, or there are fewer than `n` samples.
    """
    scored, worth = _checked(scores, truth)
    count = scored.shape[1]
    if not 1 <= n <= count:
        raise UserError(f"reward report: the best of {n} needs {n} samples a prompt, there are {count}")
    chance = np.array([comb(rank, n - 1) / comb(count, n) for rank in range(count)])
    return np.array([float(_shared(row, chance) @ own) for row, own in zip(scored, worth, strict=True)])


def rank_correlation(scores: ArrayLike, right: ArrayLike) -> float:
    """Compute Spearman's correlation over prompts of mean score and share of right samples, both [prompts, N].

    It is NaN if either is constant.

    Raises:
        UserError: see `best_of_n`.
    """
    scored, worth = _checked(scores, right)
    return spearman(scored.mean(1), worth.mean(1))


def agreement(scores: ArrayLike, others: ArrayLike) -> Values:
    """Compute the share of pairs of samples that two judges order alike, both [prompts, N] -> [prompts].

    Raises:
        UserError: see `best_of_n`; or there is only one sample per prompt.
    """
    left, right = _checked(scores, others)
    first, second = np.triu_indices(left.shape[1], k=1)
    if not len(first):
        raise UserError("reward report: agreement needs two samples a prompt, there is one")
    signs = [np.sign(values[:, first] - values[:, second]) for values in (left, right)]
    return np.asarray(0.5 + 0.5 * (signs[0] * signs[1]).mean(1))


def spearman(left: ArrayLike, right: ArrayLike) -> float:
    """Compute the correlation of the ranks of two columns, [values] each; NaN without spread.

    Ties have their mean rank.
    """
    from scipy.stats import rankdata

    ranks = [rankdata(np.asarray(column, dtype=np.float64)) for column in (left, right)]
    if any(len(column) < 2 or np.ptp(column) == 0 for column in ranks):
        return float("nan")
    return float(np.corrcoef(*ranks)[0, 1])


def _separation(right: Values, wrong: Values) -> float:
    gaps = right[:, None] - wrong[None, :]
    return float((gaps > 0).mean() + 0.5 * (gaps == 0).mean())


def _above_all(right: Values, wrong: Values) -> float:
    return float(0.5 * (1 + np.sign(right.max() - wrong.max())))


def _expected(right: Values, wrong: Values, drawn: int, worth: Callable[[int], float]) -> float:
    """Return the expected worth of the rank of a right sample among `drawn` of the wrong ones; NaN if they are fewer.

    The expectation is over the right sample, the order of equal scores and the draw of the wrong samples.
    """
    count = len(wrong)
    if count < drawn:
        return float("nan")
    by_above = [
        sum(comb(above, rank - 1) * comb(count - above, drawn - rank + 1) * worth(rank) for rank in range(1, drawn + 2))
        / comb(count, drawn)
        for above in range(count + 1)
    ]
    of_right = []
    for score in right:
        higher, equal = int((wrong > score).sum()), int((wrong == score).sum())
        of_right.append(float(np.mean(by_above[higher : higher + equal + 1])))
    return float(np.mean(of_right))


def _by_prompt(scores: ArrayLike, right: ArrayLike, statistic: Callable[[Values, Values], float]) -> Values:
    scored, truth = _checked(scores, right)
    pairs = [(row[own > 0.5], row[own <= 0.5]) for row, own in zip(scored, truth, strict=True)]
    return np.array([statistic(*pair) if len(pair[0]) and len(pair[1]) else float("nan") for pair in pairs])


def _shared(scores: Values, chance: Values) -> Values:
    """Return the probability of each sample to be the best, [N], from probabilities by rank, [N].

    Samples of equal scores have equal probabilities.
    """
    order = np.argsort(scores, kind="stable")
    of_rank = chance.copy()
    ordered = scores[order]
    for value in np.unique(ordered):
        alike = ordered == value
        of_rank[alike] = of_rank[alike].mean()
    placed = np.empty_like(of_rank)
    placed[order] = of_rank
    return placed


def _checked(scores: ArrayLike, truth: Sequence[Sequence[float]] | ArrayLike) -> tuple[Values, Values]:
    left, right = (np.asarray(values, dtype=np.float64) for values in (scores, truth))
    if left.shape != right.shape or left.ndim != 2 or 0 in left.shape:
        raise UserError(f"reward report: scores of shape {list(left.shape)} for truths of shape {list(right.shape)}")
    if not np.isfinite(left).all():
        row = int(np.argmin(np.isfinite(left).all(1)))
        raise UserError(f"reward report: a score of prompt {row} is not finite")
    return left, right

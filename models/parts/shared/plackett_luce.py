"""Rankings drawn place by place from the remaining items by score: the Plackett-Luce model; and the worth of a ranking.

    P(ranking) = prod_k  exp(s of the k-th) / sum of exp(s) over the k-th and all behind it
    d log P / d s_i = 1 - sum over the places k up to that of i of  exp(s_i) / sum of exp(s) over the k-th and behind

A ranking is drawn by adding Gumbel noise to the scores and sorting (Yellott 1977). Its worth is the normalised
discounted gain of its first k (Jarvelin & Kekalainen 2002):

    DCG@k = sum over the places p = 1 .. k of  gain / log2(p + 1);   nDCG@k = DCG@k / that of the best ranking
"""

from __future__ import annotations

import torch
from torch import Tensor


def draw_rankings(scores: Tensor, count: int, generator: torch.Generator) -> Tensor:
    """Draw rankings from the Plackett-Luce model, the first place first, [count, things], int64.

    Args:
        scores: scores of the things, [things].
        count: number of the rankings.
        generator: random generator of the draws.
    """
    uniform = torch.rand(count, len(scores), generator=generator, dtype=torch.float64)
    gumbel = -(-uniform.clamp(min=1e-300).log()).clamp(min=1e-300).log()
    return (scores.double() + gumbel).argsort(stable=True, dim=-1, descending=True)


def score_gradient(scores: Tensor, rankings: Tensor) -> Tensor:
    """Compute d log P(ranking) / d scores, [rankings, things], float64; each row adds up to zero.

    Args:
        scores: scores of the things, [things].
        rankings: things by place, [rankings, things].
    """
    ordered = scores.double()[rankings]
    log_remaining = ordered.flip(-1).logcumsumexp(-1).flip(-1)  # log sum of exp over a place and all later ones
    # sum over the places up to one's own of exp(own - log_remaining): each term is at most 1
    terms = (ordered[:, None, :] - log_remaining[:, :, None]).clamp(max=0.0).exp().triu()
    placed = 1.0 - terms.sum(1)
    return torch.zeros_like(placed).scatter(-1, rankings, placed)


def discounted_gain(gains: Tensor, rankings: Tensor, first: int) -> Tensor:
    """Compute nDCG of the first places of each ranking, [rankings], float64 in [0, 1]; 0 if all gains are zero.

    Args:
        gains: gains of the things, [things], >= 0.
        rankings: things by place, [rankings, things].
        first: how many places count.
    """
    places = min(first, len(gains))
    discount = 1.0 / torch.arange(2, places + 2, dtype=torch.float64).log2()
    best = (gains.double().sort(descending=True).values[:places] * discount).sum()
    gained = (gains.double()[rankings[:, :places]] * discount).sum(-1)
    return gained / best if best > 0 else torch.zeros_like(gained)

"""Regret: the loss relative to the best fixed choice in hindsight, and how it grows.

    R_T = sum over t of <p_t, l_t>  -  min over a of sum over t of l_t(a)

p_t is the distribution played at step t, l_t the loss of each action there. It is differentiable in p, so that the
player can be trained on the regret alone, without labels (regret-loss; paper 79, arXiv 2403.16843).
"""

from __future__ import annotations

import torch
from torch import Tensor


def regret(played: Tensor, losses: Tensor) -> Tensor:
    """Compute the regret against the best fixed action in hindsight, [...]; gradient flows to `played`.

    Args:
        played: probability of each action at each step, [..., steps, actions].
        losses: losses of each action at each step, [..., steps, actions].
    """
    best: Tensor = losses.sum(-2).min(-1).values
    return (played * losses).sum((-2, -1)) - best


def growth(cumulated: Tensor) -> Tensor:
    """Fit coefficients of 1, log t and t to the regret after t = 1 ... T steps by least squares, [3], float64.

    An explorer of logarithmic regret has a last one near zero, one that never learns has all in it (BanditBench fits
    regret by such terms; EVOLvE, paper 52). The fit is linear in `cumulated`: that of a mean is the mean of the fits.

    Args:
        cumulated: regret after each step, [T], T >= 3.
    """
    steps = torch.arange(1, len(cumulated) + 1, dtype=torch.float64)
    terms = torch.stack([torch.ones_like(steps), steps.log(), steps], -1)
    fitted: Tensor = torch.linalg.lstsq(terms, cumulated.double()[:, None], driver="gelsd").solution
    return fitted[:, 0]

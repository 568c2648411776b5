"""The distribution that a reward makes of a prior, seen through the completions of one prompt.

    p*(y) = p0(y) exp(r(y) / beta) / Z,   Z = E_p0[exp(r / beta)]

It is the optimum of E[r] - beta KL(pi || p0), and Bayes' posterior under the prior p0 and the evidence exp(r / beta)
(Korbak et al. 2022, arXiv 2205.11275; paper 56). Z is a sum over all completions that nobody can write down; what
follows needs it only up to what a group of completions tells.
"""

from __future__ import annotations

import torch
from torch import Tensor

from models.loop.rollout import TokenBatch


def log_evidence(batch: TokenBatch, beta: float) -> Tensor:
    """log p* + log Z = log p0 + r / beta of each completion, [completions], nats, no gradient; p0 is the reference."""
    assert batch.reference is not None, "the recipe check makes sure that there is a reference"
    return (batch.sum_by_completion(batch.reference) + batch.reward / beta).detach()


def log_sum_by_group(values: Tensor, batch: TokenBatch) -> Tensor:
    """log of the sum of exp(values) over each group, [completions] -> [groups], nats; gradient flows."""
    lowest = torch.full((int(batch.group.max()) + 1,), -torch.inf, dtype=values.dtype, device=values.device)
    highest = lowest.scatter_reduce(0, batch.group, values.detach(), "amax")
    return highest + batch.sum_by_group(torch.exp(values - batch.of_group(highest))).log()


def log_share_of_group(values: Tensor, batch: TokenBatch) -> Tensor:
    """log of exp(values) as shares of their group, which sum to one, [completions], nats, <= 0; gradient flows."""
    return values - batch.of_group(log_sum_by_group(values, batch))

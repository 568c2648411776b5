"""The posterior distribution of a prior under a reward, estimated from the completions of one prompt.

    p*(y) = p0(y) exp(r(y) / beta) / Z,   Z = E_p0[exp(r / beta)]

It is the optimum of E[r] - beta KL(pi || p0), and Bayes' posterior under the prior p0 and the evidence exp(r / beta)
(Korbak et al. 2022, arXiv 2205.11275; paper 56). Z is a sum over all completions that cannot be computed; the functions
here need it only as far as a group of completions determines it.
"""

from __future__ import annotations

import torch
from torch import Tensor

from models.method.token_batch import TokenBatch


def log_evidence(batch: TokenBatch, beta: float) -> Tensor:
    """Compute log p0 + r / beta of each completion, [completions], nats, no gradient; p0: the reference.

    This is log p* + log Z.
    """
    assert batch.reference is not None, "the recipe check makes sure that there is a reference"
    return (batch.sum_by_completion(batch.reference) + batch.reward / beta).detach()


def log_sum_by_group(values: Tensor, batch: TokenBatch) -> Tensor:
    """Compute log of the sum of exp(values) over each group, [completions] -> [groups], nats; gradient flows."""
    lowest = torch.full((int(batch.group.max()) + 1,), -torch.inf, dtype=values.dtype, device=values.device)
    highest = lowest.scatter_reduce(0, batch.group, values.detach(), "amax")
    return highest + batch.sum_by_group(torch.exp(values - batch.of_group(highest))).log()


def log_share_of_group(values: Tensor, batch: TokenBatch) -> Tensor:
    """Compute the log of each exp(values) as a share of its group's sum, [completions], nats, <= 0; gradient flows."""
    return values - batch.of_group(log_sum_by_group(values, batch))

"""Likelihood weighted by the exponential of reward: supervised learning from data of mixed quality.

    loss = -exp(A / beta) * log pi

The policy that maximises E[r] - beta * KL(pi || mu) is pi* = mu * exp(r / beta) / Z. Its projection on the policies
that the model can represent, min KL(pi* || pi), is the likelihood of mu's answers with weights exp(r / beta), without
any sampling. With `advantage: {name: reward}` this is C-RLFT of OpenChat (arXiv 2309.11235; paper 316), which gives
each source of data one reward; the derivation is that of reward-weighted regression.
"""

from __future__ import annotations

import torch
from pydantic import PositiveFloat
from torch import Tensor

from models.method.objective import Objective
from models.method.registry import part
from models.method.token_batch import TokenBatch


@part("exponential_likelihood")
class ExponentialLikelihood(Objective):
    """Negative log-likelihood times exp(A / beta), token by token."""

    level = "token"
    beta: PositiveFloat = 1.0
    """Units of advantage that multiply the weight by e: small is greedy, large is plain supervised learning."""
    ceiling: PositiveFloat = 100.0
    """Largest weight exp(A / beta)."""

    def __call__(self, log_prob: Tensor, batch: TokenBatch) -> tuple[Tensor, dict[str, Tensor]]:
        """Compute the loss of each token, [tokens], nats.

        Args:
            log_prob: log pi of each token, [tokens], nats; gradient flows.
            batch: advantages, [tokens].
        """
        weight = torch.exp(batch.advantage / self.beta).clamp(max=self.ceiling)
        return -weight * log_prob, {"likelihood": log_prob.detach(), "likelihood_weight": weight.detach()}

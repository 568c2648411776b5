"""Clipped policy gradient with a KL term to the reference: the objective of GRPO (arXiv 2402.03300).

loss = -w * min(rho * A, clip(rho, 1 - low, 1 + high) * A) + beta * k3

rho = pi / pi_old          the learner's own ratio; one on the first update of a round
w   = min(pi_old / mu, c)  importance sampling: the engine that sampled (mu) is never exactly the learner (pi_old), by
                           precision or by staleness; other forms: `models.parts.shared.importance`
k3  = exp(d) - 1 - d with d = log(reference / pi): the low-variance, never negative KL estimator
      (Schulman 2020); its gradient is taken through the samples' own log-probs, as the paper does

The fit takes a bonus of `entropy_bonus` for each nat of entropy off the loss, as a mean over all tokens however the
loss itself is averaged: where it is rewarded the policy keeps exploring (T1, arXiv 2501.11651; paper 89).
"""

from __future__ import annotations

import torch
from pydantic import NonNegativeFloat
from torch import Tensor

from models.method.registry import part
from models.method.token_batch import TokenBatch
from models.parts.shared.clipped_ratio import ClipSettings, clipped
from models.parts.shared.importance import importance_weight
from models.parts.shared.kl_term import KlSettings, kl_term


@part("grpo")
class Grpo(ClipSettings, KlSettings):
    """Clipped surrogate, token by token."""

    level = "token"
    kl: NonNegativeFloat = 0.01
    entropy_bonus: NonNegativeFloat = 0.0
    """Value of a nat of the tokens' mean entropy."""

    def __call__(self, log_prob: Tensor, batch: TokenBatch) -> tuple[Tensor, dict[str, Tensor]]:
        """Compute the loss of each token, [tokens]; `log_prob` is log pi of each, nats."""
        surrogate, watch = clipped(torch.exp(log_prob - batch.old), batch.advantage, self)
        weight, of_weight = importance_weight(batch, self)
        penalty, of_kl = kl_term(log_prob, batch, self)
        return penalty - weight * surrogate, watch | of_weight | of_kl

"""Geometric-mean policy optimisation: a completion's ratio is a geometric mean over tokens (GMPO, arXiv 2507.20673).

    loss = -w * A * exp(mean over t of clipped log rho_t) + beta * KL,   rho = pi / pi_old
    clipped log rho_t = min(log rho_t, high) where A > 0, max(log rho_t, -low) where A < 0

A mean of ratios is dominated by the largest, a geometric mean is not, so the clip may be wide. It applies to each token
before the mean: only a token that has moved too far leaves the gradient, not its whole completion as in GSPO. Every
token of a completion has the completion's loss; with schedule.normalisation: completion that is the paper's mean.
"""

from __future__ import annotations

import torch
from pydantic import NonNegativeFloat
from torch import Tensor

from models.method.registry import part
from models.method.token_batch import TokenBatch
from models.parts.shared.importance import ImportanceSettings, importance_weight
from models.parts.shared.kl_term import KlSettings, kl_term


@part("gmpo")
class Gmpo(KlSettings, ImportanceSettings):
    """Geometric mean of clipped ratios, completion by completion."""

    level = "token"
    log_clip_low: NonNegativeFloat | None = 0.4
    """Distance by which a token's log-ratio may fall if the advantage is negative, nats; null: no limit."""
    log_clip_high: NonNegativeFloat | None = 0.4
    """Distance by which it may rise if the advantage is positive, nats; null: no limit."""

    def __call__(self, log_prob: Tensor, batch: TokenBatch) -> tuple[Tensor, dict[str, Tensor]]:
        """Compute the loss of each token, [tokens]; `log_prob` is log pi of each, nats."""
        log_ratio = log_prob - batch.old
        advantage = batch.mean_by_completion(batch.advantage)[batch.completion]
        low = -torch.inf if self.log_clip_low is None else -self.log_clip_low
        high = torch.inf if self.log_clip_high is None else self.log_clip_high
        clipped = torch.where(advantage < 0, log_ratio.clamp(min=low), log_ratio.clamp(max=high))
        ratio = torch.exp(batch.mean_by_completion(clipped))[batch.completion]
        surrogate = advantage * ratio
        watch = {"clipped_share": (clipped != log_ratio).to(ratio), "ratio": ratio.detach()}
        weight, of_weight = importance_weight(batch, self)
        penalty, of_kl = kl_term(log_prob, batch, self)
        return penalty - weight * surrogate, watch | of_weight | of_kl

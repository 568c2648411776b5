"""Geometric-mean policy optimisation: the ratio of a completion is the geometric mean of its tokens' (GMPO, arXiv
2507.20673).

    loss = -w * A * exp(mean over t of clipped log rho_t) + beta * KL,   rho = pi / pi_old
    clipped log rho_t = min(log rho_t, high) where A > 0, max(log rho_t, -low) where A < 0

A mean of ratios is at the mercy of the largest, a geometric mean is not, so the clip may be wide. It is each token's,
before the mean: one that has gone too far leaves the gradient alone, and not with its completion as in GSPO. The loss
stands at every token of its completion; under schedule.normalisation: completion that is the paper's mean.
"""

from __future__ import annotations

import torch
from pydantic import NonNegativeFloat
from torch import Tensor

from models.formulas.policy_gradient import PolicyGradient
from models.loop.rollout import TokenBatch
from models.parts import part


@part("gmpo")
class Gmpo(PolicyGradient):
    """Geometric mean of clipped ratios, completion by completion."""

    log_clip_low: NonNegativeFloat | None = 0.4
    """How far a token's log-ratio may fall, where the advantage is negative, nats; null: any."""
    log_clip_high: NonNegativeFloat | None = 0.4
    """How far it may rise, where the advantage is positive, nats; null: any."""

    def _surrogate(self, log_prob: Tensor, batch: TokenBatch) -> tuple[Tensor, dict[str, Tensor]]:
        log_ratio = log_prob - batch.old
        advantage = batch.mean_by_completion(batch.advantage)[batch.completion]
        low = -torch.inf if self.log_clip_low is None else -self.log_clip_low
        high = torch.inf if self.log_clip_high is None else self.log_clip_high
        clipped = torch.where(advantage < 0, log_ratio.clamp(min=low), log_ratio.clamp(max=high))
        ratio = torch.exp(batch.mean_by_completion(clipped))[batch.completion]
        return advantage * ratio, {"clipped_share": (clipped != log_ratio).to(ratio), "ratio": ratio}

"""Clipped importance weights instead of clipped updates (CISPO; MiniMax-M1, arXiv 2506.13585).

    loss = -w * sg[clip(rho, 1 - low, 1 + high)] * A * log pi + beta * KL,   rho = pi / pi_old

A clipped surrogate leaves tokens whose ratio has moved too far out of the gradient, and these are the rare ones at
which reasoning turns. Here every token keeps its gradient; only the weight that corrects its sampling is bounded. w is
the correction of the engine's log-probs to the learner's.
"""

from __future__ import annotations

import torch
from pydantic import NonNegativeFloat
from torch import Tensor

from models.base.bounds import Share
from models.method.registry import part
from models.method.token_batch import TokenBatch
from models.parts.shared.clipped_ratio import clip
from models.parts.shared.importance import ImportanceSettings, importance_weight
from models.parts.shared.kl_term import KlSettings, kl_term


@part("cispo")
class Cispo(KlSettings, ImportanceSettings):
    """Policy gradient under a bounded weight, token by token."""

    level = "token"
    clip_low: Share | None = None
    """Distance by which the weight may fall below one; null: no limit, as in the paper."""
    clip_high: NonNegativeFloat | None = 4.0
    """Distance by which the weight may rise above one; null: no limit."""

    def __call__(self, log_prob: Tensor, batch: TokenBatch) -> tuple[Tensor, dict[str, Tensor]]:
        """Compute the loss of each token, [tokens]; `log_prob` is log pi of each, nats."""
        ratio = torch.exp(log_prob.detach() - batch.old)
        bounded = clip(ratio, self.clip_low, self.clip_high)
        surrogate = bounded * batch.advantage * log_prob
        watch = {"clipped_share": (ratio != bounded).to(ratio), "ratio": ratio}
        weight, of_weight = importance_weight(batch, self)
        penalty, of_kl = kl_term(log_prob, batch, self)
        return penalty - weight * surrogate, watch | of_weight | of_kl

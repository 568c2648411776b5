"""The KL to the reference as a term of the loss, estimated at the sampled tokens.

    k3 = exp(d) - 1 - d,   d = log(reference / pi)

The low-variance, never negative estimator of KL(pi || reference) (Schulman 2020); its gradient is taken through the
samples' own log-probs, as GRPO does (arXiv 2402.03300).
"""

from __future__ import annotations

import torch
from torch import Tensor

from models.loop.rollout import TokenBatch


def k3(log_prob: Tensor, reference: Tensor) -> Tensor:
    """KL(policy || reference) estimated at each sampled token, [tokens], nats, >= 0."""
    difference = reference - log_prob
    return torch.exp(difference) - 1.0 - difference


def add_kl(
    loss: Tensor, watch: dict[str, Tensor], log_prob: Tensor, batch: TokenBatch, weight: float
) -> tuple[Tensor, dict[str, Tensor]]:
    """The loss with its KL term and what is watched with the KL; both as they are where there is no reference.

    A term of weight zero is watched and not added: far from the reference exp overflows, and 0 * inf is no number.

    Args:
        loss: of each token, [tokens].
        watch: what is watched already, [tokens] each.
        log_prob: log pi of each token, [tokens], nats; gradient flows.
        batch: the reference's log-probs, [tokens].
        weight: of the term (beta).
    """
    if batch.reference is None:
        return loss, watch
    divergence = k3(log_prob if weight else log_prob.detach(), batch.reference)
    return loss + weight * divergence if weight else loss, {**watch, "kl": divergence.detach()}

"""Weights that correct samples of one policy to another, truncated so that no single one decides a step."""

from __future__ import annotations

import torch
from torch import Tensor


def truncated_importance(log_prob: Tensor, behaviour: Tensor, ceiling: float) -> Tensor:
    """Weight min(pi / mu, ceiling), no gradient, any shape.

    Args:
        log_prob: log pi of what was sampled, of tokens, of completions or of pairs, nats.
        behaviour: log mu under the policy that sampled, same shape, nats.
        ceiling: largest weight.
    """
    return torch.exp((log_prob - behaviour).detach()).clamp(max=ceiling)

"""Cross-entropy of a preference against a label between 0 and 1, and how unsure an order is."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional


def soft_loss(margin: Tensor, label: Tensor | float) -> Tensor:
    """Compute the cross-entropy of sigmoid(margin) against a label in [0, 1], nats, same shape; gradient to the margin.

    It does not depend on which of the two is called the better one: (margin, label) and (-margin, 1 - label) cost the
    same.
    """
    return -label * functional.logsigmoid(margin) - (1.0 - label) * functional.logsigmoid(-margin)


def uncertainty(log_odds: Tensor) -> Tensor:
    """Compute the entropy in bits of a probability with these log-odds, in [0, 1], same shape: 1 at zero, 0 far off."""
    chance = torch.sigmoid(log_odds)
    surprise = chance * functional.logsigmoid(log_odds) + (1.0 - chance) * functional.logsigmoid(-log_odds)
    return -surprise / torch.log(torch.full_like(chance, 2.0))

"""A loss that a language model discovered: logistic if a pair is ordered wrong, exponential if right (DiscoPOP).

    loss = (1 - w) * -log sigmoid(m) + w * exp(-m),   w = sigmoid(m / temperature),   m = DPO's margin

Log-ratio modulated loss of "Discovering Preference Optimization Algorithms with and for Large Language Models" (arXiv
2406.08414, equation 5). Gradient flows through the weight too, and the loss is not convex: its slope at m = 0 is (1 -
log 2) / (4 temperature) - 3/4. So below a temperature of 0.102, as the paper has it, there is a dip left of zero that
draws in a policy which begins as its reference; only pairs that other pairs have lifted over the hill continue from
there.
"""

from __future__ import annotations

from typing import Annotated

import torch
from pydantic import Field, PositiveFloat
from torch import Tensor
from torch.nn import functional

from models.method.registry import part
from models.method.token_batch import TokenBatch
from models.parts.shared.pair_loss import PairLoss, margins

STEEPEST = -60.0
"""Margin below which exp(-m) is constant: its weight is zero there for any temperature up to one."""


@part("discopop")
class DiscoPop(PairLoss):
    """Mixture of a logistic and an exponential loss per pair, weighted by the margin; needs a reference."""

    beta: PositiveFloat = 0.05
    """Strength of the pull to the reference, as in DPO."""
    temperature: Annotated[float, Field(gt=0, le=1)] = 0.05
    """Margin within which the one loss gives way to the other (tau)."""

    def _loss(self, scores: Tensor, batch: TokenBatch) -> Tensor:
        margin = margins(scores)
        exponential = torch.sigmoid(margin / self.temperature) * torch.exp(-margin.clamp(min=STEEPEST))
        return torch.sigmoid(-margin / self.temperature) * -functional.logsigmoid(margin) + exponential

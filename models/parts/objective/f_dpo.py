"""DPO under another divergence to the reference than reverse KL (f-DPO, arXiv 2309.16240).

    loss = -log sigmoid(s_better - s_worse),   s = beta f'(pi / ref)

    reverse_kl       f'(t) = log t + 1           DPO
    forward_kl       f'(t) = -1 / t
    jensen_shannon   f'(t) = log(2 t / (t + 1))
    alpha            f'(t) = (1 - t^-alpha) / alpha      near 0 reverse KL, at 1 forward KL

Where E[r] - beta D_f(pi || ref) is maximised the reward is beta f'(pi / ref) but for a constant of the prompt, as long
as the reference gives no answer a probability of zero. A constant of f' cancels in the margin. Forward KL and alpha
make a worse answer that has become unlikely extremely unlikely: their slopes grow without bound, and powers of 1 / t
are limited to e^30, beyond which the loss is flat.
"""

from __future__ import annotations

from typing import Annotated, Literal

import torch
from pydantic import Field
from torch import Tensor
from torch.nn import functional

from models.method.registry import part
from models.method.token_batch import TokenBatch
from models.parts.objective.divergence import slope
from models.parts.shared.implied_rewards import implied_of_pairs
from models.parts.shared.pair_loss import PairLoss, margins

LARGEST_POWER = 30.0
"""Exponent at which powers of ref / pi are limited."""


@part("f_dpo")
class FDpo(PairLoss):
    """DPO's logistic loss per pair under the chosen divergence; needs a reference."""

    to: Literal["reverse_kl", "forward_kl", "jensen_shannon", "alpha"] = "jensen_shannon"
    """Divergence that holds the policy to the reference."""
    alpha: Annotated[float, Field(gt=0, le=1)] = 0.5
    """Parameter of the alpha-divergence; unused for the others."""

    def _scores(self, log_prob: Tensor, batch: TokenBatch) -> Tensor:
        ratio = implied_of_pairs(log_prob, batch, 1.0)
        if self.to == "alpha":
            return self.beta * (1.0 - torch.exp((-self.alpha * ratio).clamp(max=LARGEST_POWER))) / self.alpha
        inverse = torch.exp((-ratio).clamp(max=LARGEST_POWER))
        return self.beta * slope(ratio, torch.ones_like(ratio), inverse, self.to)

    def _loss(self, scores: Tensor, batch: TokenBatch) -> Tensor:
        return -functional.logsigmoid(margins(scores))

"""Hinge loss on a pair's margin: calibration by a fixed lead (SLiC-HF, arXiv 2305.10425; RSO, arXiv 2309.06657).

    loss = max(0, 1 - margin) + sft * NLL (better)
    SLiC-HF   margin = beta [log pi (better) - log pi (worse)]            delta of the paper is 1 / beta
    RSO       margin = beta [log pi/ref (better) - log pi/ref (worse)]    `against_reference`, hinge-norm in the paper

SLiC-HF's loss, max(0, delta - log pi (better) + log pi (worse)), is this one times delta. A pair whose margin is 1 has
no gradient any more, unlike under a logistic loss.
"""

from __future__ import annotations

import torch
from torch import Tensor

from models.method.registry import part
from models.method.token_batch import TokenBatch
from models.parts.shared.pair_loss import PairLoss, margins


@part("hinge")
class Hinge(PairLoss):
    """Hinge loss per pair; needs a reference if `against_reference` is set."""

    against_reference: bool = False
    """true: the margin is one of log-ratios (RSO); false: of log-probs (SLiC-HF)."""

    @property
    def needs_reference(self) -> bool:
        """Whether the margin is one of log-ratios."""
        return self.against_reference

    def _scores(self, log_prob: Tensor, batch: TokenBatch) -> Tensor:
        return super()._scores(log_prob, batch) if self.against_reference else self.beta * log_prob

    def _loss(self, scores: Tensor, batch: TokenBatch) -> Tensor:
        return torch.relu(1.0 - margins(scores))

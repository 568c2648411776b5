"""Efficient exact optimisation: the reverse KL between the policy's preference and the label (EXO, arXiv 2402.00856).

    loss = q log(q / (1 - e)) + (1 - q) log((1 - q) / e),   q = sigmoid(margin), margin as in DPO

DPO's cross-entropy is the KL in the other direction. This direction is mode-seeking: a pair that the policy orders far
the wrong way has a vanishing gradient, as it has in the KL-regularised reward maximisation. The label is smoothed by e,
because the KL to a certain label is infinite. The case of pairs, EXO-pref (equation 16).
"""

from __future__ import annotations

import math
from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor
from torch.nn import functional

from models.method.registry import part
from models.method.token_batch import TokenBatch
from models.parts.shared.pair_loss import PairLoss, margins


@part("exo")
class Exo(PairLoss):
    """Reverse KL per pair between the policy's preference and the label; needs a reference."""

    label_smoothing: Annotated[float, Field(gt=0, lt=0.5)] = 0.001
    """Chance that the label of a pair is wrong (e)."""

    def _loss(self, scores: Tensor, batch: TokenBatch) -> Tensor:
        margin = margins(scores)
        as_seen = functional.logsigmoid(margin) - math.log1p(-self.label_smoothing)
        flipped = functional.logsigmoid(-margin) - math.log(self.label_smoothing)
        return torch.sigmoid(margin) * as_seen + torch.sigmoid(-margin) * flipped

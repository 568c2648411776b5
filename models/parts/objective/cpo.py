"""Contrastive preference optimisation: DPO without a reference, stabilised by imitation (CPO, arXiv 2401.08417).

    loss = -log sigmoid(beta [log pi (better) - log pi (worse)]) + sft * NLL (better)

The margin is DPO's with a reference that is the same for all answers. The imitation of the better answer is the KL to
the data's better answers, by which the paper replaces the reference.
"""

from __future__ import annotations

from pydantic import NonNegativeFloat
from torch import Tensor
from torch.nn import functional

from models.method.registry import part
from models.method.token_batch import TokenBatch
from models.parts.shared.pair_loss import PairLoss, margins


@part("cpo")
class Cpo(PairLoss):
    """DPO's loss per pair without a reference, plus imitation of the better answer."""

    needs_reference = False
    sft: NonNegativeFloat = 1.0
    """Weight of the mean negative log-prob of the better answer's tokens, added to the loss of the pair."""

    def _scores(self, log_prob: Tensor, batch: TokenBatch) -> Tensor:
        return self.beta * log_prob

    def _loss(self, scores: Tensor, batch: TokenBatch) -> Tensor:
        return -functional.logsigmoid(margins(scores))

"""Odds ratio preference optimisation: imitation with a penalty, in one stage, without a reference (arXiv 2403.07691).

    loss = sft * NLL (better) - beta * log sigmoid(log odds (better) - log odds (worse))
    log odds = log p - log(1 - p),   log p = log pi / tokens of the answer

p is the geometric mean of the probabilities of an answer's tokens. The paper calls the weight of the odds ratio lambda;
TRL, as here, beta. Where the worse answer is unlikely already its odds change little with p, so the term is milder than
a ratio of probabilities: it is meant to be combined with imitation and not to train the policy alone.
"""

from __future__ import annotations

import torch
from pydantic import NonNegativeFloat, PositiveFloat
from torch import Tensor
from torch.nn import functional

from models.method.registry import part
from models.method.token_batch import TokenBatch
from models.parts.shared.pair_loss import PairLoss, margins, mean_over_tokens


@part("orpo")
class Orpo(PairLoss):
    """Imitation of the better answer plus a logistic loss of the log odds ratio, per pair; without a reference."""

    needs_reference = False
    beta: PositiveFloat = 0.1
    """Weight of the odds ratio (lambda in the paper)."""
    sft: NonNegativeFloat = 1.0
    """Weight of the mean negative log-prob of the better answer's tokens, to which the odds-ratio term is added."""

    def _scores(self, log_prob: Tensor, batch: TokenBatch) -> Tensor:
        mean = mean_over_tokens(log_prob, batch)
        # log(1 - e^m) as log(-expm1(m)) keeps its digits for m near 0; at 0 itself the odds are infinite
        return mean - torch.log(-torch.expm1(mean.clamp(max=-torch.finfo(mean.dtype).tiny)))

    def _loss(self, scores: Tensor, batch: TokenBatch) -> Tensor:
        return -self.beta * functional.logsigmoid(margins(scores))

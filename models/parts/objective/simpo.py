"""Simple preference optimisation: the mean log-prob of an answer is its reward (SimPO, arXiv 2405.14734).

    loss = -log sigmoid(beta [log pi (better) / tokens - log pi (worse) / tokens] - gamma)

The loss needs no reference, and compares the quantity that decoding maximises: the mean log-prob of the tokens. `gamma`
is the margin by which the better answer is to lead; the paper sets gamma / beta. Only a small step size keeps the
policy near its beginning.
"""

from __future__ import annotations

from pydantic import NonNegativeFloat, PositiveFloat
from torch import Tensor
from torch.nn import functional

from models.method.registry import part
from models.method.token_batch import TokenBatch
from models.parts.shared.pair_loss import PairLoss, margins, mean_over_tokens


@part("simpo")
class SimPo(PairLoss):
    """Logistic loss per pair of the difference of mean log-probs, less a required lead; without a reference."""

    needs_reference = False
    beta: PositiveFloat = 2.0
    """Factor of mean log-probs."""
    gamma: NonNegativeFloat = 1.0
    """Lead required of the better answer, in units of beta times nats per token."""

    def _scores(self, log_prob: Tensor, batch: TokenBatch) -> Tensor:
        return self.beta * mean_over_tokens(log_prob, batch)

    def _loss(self, scores: Tensor, batch: TokenBatch) -> Tensor:
        return -functional.logsigmoid(margins(scores) - self.gamma)

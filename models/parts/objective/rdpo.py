"""Robust DPO: preferences whose labels are flipped at a known rate (paper 311, "Provably Robust DPO").

    loss = [(1 - e) * l(margin) - e * l(-margin)] / (1 - 2 e),   l(m) = -log sigmoid(m), margin as in DPO

Derivation: seen labels are right with chance 1 - e, so E[l~(m)] over flips is (1 - e) l~(m) + e l~(-m), and this is
to be the clean l(m) whichever way the pair lies. The two equations, one for m and one for -m, have the solution above.
The mean over flips is exactly DPO's loss on clean labels; the price is a variance that grows as 1 / (1 - 2 e)^2.

The loss of one pair has no lower bound: far beyond l(m) = 0 it falls by e / (1 - 2 e) a nat of margin, and only the
other pairs hold it. The less data, the more it asks for a small step size.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import Field
from torch import Tensor
from torch.nn import functional

from models.method.registry import part
from models.method.token_batch import TokenBatch
from models.parts.shared.pair_loss import PairLoss, margins


@part("rdpo")
class RobustDpo(PairLoss):
    """Loss per pair that is DPO's in expectation over label flips; it may be negative; needs a reference."""

    flip_rate: Annotated[float, Field(ge=0, lt=0.5)] = 0.1
    """Share of pairs whose label is flipped, the better answer marked as the worse (e); zero is DPO."""

    def _loss(self, scores: Tensor, batch: TokenBatch) -> Tensor:
        margin = margins(scores)
        as_seen, flipped = -functional.logsigmoid(margin), -functional.logsigmoid(-margin)
        return ((1.0 - self.flip_rate) * as_seen - self.flip_rate * flipped) / (1.0 - 2.0 * self.flip_rate)

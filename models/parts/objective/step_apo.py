"""Step-level advantage preference optimisation (Step-APO): DPO whose pairs ask for a margin (CPL, paper 143).

    loss = -log sigmoid(beta [log pi/ref (better step) - log pi/ref (worse step)] - scale * (V(better) - V(worse)))

V is the value of a step, such as that of a tree search. Both steps follow the same history, so the difference of their
values is the difference of their advantages. DPO asks each pair to be in order. Here a pair with a large difference has
a larger gradient, and it keeps a gradient until the policy is apart by more than this difference. Critical steps, at
which most is won or lost, are thus learned before others. Steps of equal value, or scale 0, give DPO.

Derived from the paper's abstract, without its code: the exact place of the advantages in its loss is not verified.
"""

from __future__ import annotations

from pydantic import NonNegativeFloat
from torch import Tensor
from torch.nn import functional

from models.method.registry import part
from models.method.slot_part import TOTAL
from models.method.token_batch import TokenBatch
from models.parts.shared.pair_loss import PairLoss, margins


@part("step_apo")
class StepApo(PairLoss):
    """Logistic loss per pair of steps, less a margin that is the difference of their values; needs a reference."""

    by: str = TOTAL
    """Label of the reward that is the value of a step; `total`: the weighted sum of all."""
    scale: NonNegativeFloat = 1.0
    """Margin, in nats of beta log pi/ref, per unit of the difference of values; 0 is DPO."""

    def _loss(self, scores: Tensor, batch: TokenBatch) -> Tensor:
        assert batch.pairs is not None, "the level is pair"
        apart = margins(batch.worth(self.by)[batch.pairs])
        return -functional.logsigmoid(margins(scores) - self.scale * apart)

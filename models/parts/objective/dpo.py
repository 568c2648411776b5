"""Direct preference optimisation (Rafailov et al. 2023, arXiv 2305.18290; paper 84), and with doubt about the labels.

    loss = -(1 - e) log sigmoid(margin) - e log sigmoid(-margin)
    margin = beta * [log pi/ref (better) - log pi/ref (worse)]

The reward model that the policy itself implies, r = beta log pi/ref, is fitted to the preference of each pair. With
`label_smoothing` e > 0 it is conservative DPO (cDPO, Mitchell 2023, "A note on DPO with noisy preferences"): a label is
taken to be wrong with that chance, and a pair has no gradient at the margin log((1 - e) / e). Its mean over flipped
labels is not the loss on clean ones; that is the objective `rdpo`.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import Field
from torch import Tensor

from models.method.registry import part
from models.method.token_batch import TokenBatch
from models.parts.shared.pair_loss import PairLoss, margins
from models.parts.shared.soft_label import soft_loss


@part("dpo")
class Dpo(PairLoss):
    """Logistic loss per pair of the difference of implied rewards; needs a reference."""

    label_smoothing: Annotated[float, Field(ge=0, lt=0.5)] = 0.0
    """Chance that the label of a pair is wrong (e); zero is DPO as it was published."""

    def _loss(self, scores: Tensor, batch: TokenBatch) -> Tensor:
        return soft_loss(margins(scores), 1.0 - self.label_smoothing)

"""Anchored preference optimisation: each answer of a pair has a target direction of its own (APO, arXiv 2408.06266).

    zero   loss = 1 - sigmoid(s_better) + sigmoid(s_worse)             up with the one, down with the other
    down   loss = sigmoid(s_better) + 1 - sigmoid(s_better - s_worse)  down with both, with the worse one further

with s = beta log pi/ref. DPO constrains only the difference and leaves open whether the better answer becomes likelier.
zero is for better answers that are better than the policy's own, down for those that are not. Every term is bounded, so
a pair far on the wrong side, which is probably a wrong label, has a vanishing gradient, as has a pair far on the right
side.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from models.method.registry import part
from models.method.token_batch import TokenBatch
from models.parts.shared.pair_loss import PairLoss, margins


@part("apo")
class Apo(PairLoss):
    """Loss per pair, in [0, 2], that moves each answer in a direction of its own; needs a reference."""

    anchor: Literal["zero", "down"] = "zero"
    """Target of the better answer. zero: likelier than before; down: less likely, but not as much as the worse one."""

    def _loss(self, scores: Tensor, batch: TokenBatch) -> Tensor:
        better, worse = scores.unbind(-1)
        if self.anchor == "zero":
            return torch.sigmoid(-better) + torch.sigmoid(worse)
        return torch.sigmoid(better) + torch.sigmoid(-margins(scores))

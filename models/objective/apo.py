"""Anchored preference optimisation: each answer of a pair is told where to go by itself (APO, arXiv 2408.06266).

    zero   loss = 1 - sigmoid(s_better) + sigmoid(s_worse)             up with the one, down with the other
    down   loss = sigmoid(s_better) + 1 - sigmoid(s_better - s_worse)  down with both, with the worse one further

with s = beta log pi/ref. DPO asks for a difference alone and leaves open whether the better answer becomes likelier.
zero is for better answers that are better than what the policy writes, down for those that are not. Every term is
bounded, so a pair far on the wrong side, which is likely a wrong label, is given up as one far on the right side is.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from models.formulas.pair_loss import PairLoss, margins
from models.loop.rollout import TokenBatch
from models.parts import part


@part("apo")
class Apo(PairLoss):
    """One loss a pair, in [0, 2]; needs a reference."""

    anchor: Literal["zero", "down"] = "zero"
    """zero: the better answer is to become likelier; down: less likely, though not as much as the worse one."""

    def _loss(self, scores: Tensor, batch: TokenBatch) -> Tensor:
        better, worse = scores.unbind(-1)
        if self.anchor == "zero":
            return torch.sigmoid(-better) + torch.sigmoid(worse)
        return torch.sigmoid(better) + torch.sigmoid(-margins(scores))

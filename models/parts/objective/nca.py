"""Noise contrastive alignment of pairs: each answer has a target, not only their difference (NCA, arXiv 2402.05369).

    loss = -log sigmoid(s_better) - 1/2 log sigmoid(-s_better) - 1/2 log sigmoid(-s_worse),   s = beta log pi/ref

Each answer is classified by itself as the better one or as a draw from the reference, which both are with a chance of
one half: the pairwise case of NCA. The better answer has no gradient at s = log 2, where DPO would push on, and the
worse one falls.
"""

from __future__ import annotations

from torch import Tensor
from torch.nn import functional

from models.method.registry import part
from models.method.token_batch import TokenBatch
from models.parts.shared.pair_loss import PairLoss
from models.parts.shared.soft_label import soft_loss


@part("nca")
class Nca(PairLoss):
    """Classification loss per pair, in which each answer is judged by itself; needs a reference."""

    def _loss(self, scores: Tensor, batch: TokenBatch) -> Tensor:
        better, worse = scores.unbind(-1)
        return 1.5 * soft_loss(better, 2.0 / 3.0) - 0.5 * functional.logsigmoid(-worse)

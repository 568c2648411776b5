"""Binary classifier optimisation: the policy's implied reward as a classifier of good answers (BCO, arXiv 2404.04656).

    loss = -log sigmoid(beta (log pi/ref - d))        of an answer that is good
    loss = -log sigmoid(beta (d - log pi/ref))        of one that is not

d shifts the reward so that good and poor answers are on both sides of zero; the nearer it is to their middle, the
closer is the sum over a pair to DPO's loss, of which it is an upper bound. The paper takes a moving average of the mean
implied reward; here d is the mean log-ratio of the round's answers (`log_ratio_baseline` with `over: matched`), read
once before the first step, as for KTO. Without the shift, d = 0, it is TRL's `bco_pair`.
"""

from __future__ import annotations

from torch import Tensor
from torch.nn import functional

from models.method.registry import part
from models.parts.objective.kto import Kto


@part("bco")
class Bco(Kto):
    """Loss per answer of a classifier of good answers; needs a reference, and a reward that holds the shift d."""

    def _loss(self, lead: Tensor) -> Tensor:
        return -functional.logsigmoid(lead)

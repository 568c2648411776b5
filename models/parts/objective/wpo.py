"""Weighted preference optimisation: a pair counts more, the more typical it is of the policy (WPO, arXiv 2406.11827).

    loss = w * DPO's loss of the pair,   w = min(1, exp(t_better + t_worse))
    t    = mean over the tokens of an answer of [log pi(token) - log sum over v of pi(v)^2]

Preferences of the data are off-policy: most concern answers that the policy would not write. The weight makes them look
like a sample of its own. A token is as likely as one that the policy draws, on average, where its log-prob is log sum
pi(v)^2; the mean over tokens keeps long answers from having no weight at all. No gradient flows through the weight. t
is the component of the reward called `by` (`typicality`), read as the round begins.
"""

from __future__ import annotations

import torch
from torch import Tensor

from models.method.registry import part
from models.method.token_batch import TokenBatch
from models.parts.objective.dpo import Dpo


@part("wpo")
class Wpo(Dpo):
    """DPO's loss per pair, weighted by typicality; needs a reference, and a reward that measures the typicality."""

    by: str = "typicality"
    """The reward component that holds t, in nats per token."""

    def _loss(self, scores: Tensor, batch: TokenBatch) -> Tensor:
        assert batch.pairs is not None, "objectives over pairs see pairs"
        weight = torch.exp(batch.worth(self.by)[batch.pairs].sum(-1).clamp(max=0.0))
        return weight.to(scores) * super()._loss(scores, batch)

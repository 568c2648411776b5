"""DPO whose margin does not grow with an answer's length: the log-ratio is a mean over tokens, or length has a price.

    loss = -log sigmoid(s_better - s_worse + length_weight (tokens better - tokens worse))
    s = beta log pi/ref, with `average: tokens` divided by the tokens of the answer

Length-normalised DPO (LN-DPO: Tulu 3, arXiv 2411.15124; SimPO's ablation, arXiv 2405.14734; TRL's `sigmoid_norm`) has
the average: it compares the log-ratio of a token, for long answers and short ones alike.

Length-regularised DPO (R-DPO, Park et al. 2024, arXiv 2403.19159) has the weight: where E[r] - length_weight E[tokens]
- beta KL is maximised, r = beta log pi/ref + length_weight * tokens but for a constant of the prompt. In
Bradley-Terry's loss this gives the margin above: a part of a preference for the longer answer is explained by its
length, and the policy learns the rest.
"""

from __future__ import annotations

from typing import Literal

from torch import Tensor

from models.base.bounds import Number
from models.method.registry import part
from models.method.token_batch import TokenBatch
from models.parts.objective.dpo import Dpo
from models.parts.shared.pair_loss import mean_over_tokens


@part("length_dpo")
class LengthDpo(Dpo):
    """DPO's loss per pair, averaged over tokens or with a price of length; needs a reference."""

    average: Literal["none", "tokens"] = "none"
    """none: log-ratios of whole answers; tokens: divided by the number of trained tokens of each."""
    length_weight: Number = 0.0
    """Reward that the policy gives up per token of length (alpha); with zero and no average the loss is DPO's."""

    def _scores(self, log_prob: Tensor, batch: TokenBatch) -> Tensor:
        scores = super()._scores(log_prob, batch)
        return mean_over_tokens(scores, batch) if self.average == "tokens" else scores

    def _loss(self, scores: Tensor, batch: TokenBatch) -> Tensor:
        assert batch.pairs is not None, "objectives over pairs see pairs"
        priced = scores + self.length_weight * batch.lengths[batch.pairs].to(scores)
        return super()._loss(priced, batch)

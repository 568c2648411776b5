"""Weighted likelihood: completions are cloned in proportion to their advantage, bad ones pushed away.

    loss = -A * log pi + kl * k3,   token by token

With A = 1 for every chosen completion it is supervised fine-tuning on one's own samples (RAFT, Dong et al. 2023, arXiv
2304.06767; paper 217); with A > 0 for right and A < 0 for wrong ones it is the loss of OREAL (paper 280), whose KL term
keeps the policy near its reference. k3 is the estimator of `models.parts.shared.kl_term`.

No weight corrects for the sampler of the completions: cloning needs none, as it moves towards the chosen ones. Bad
completions are pushed away as if the policy had written them, so that a policy gradient (OREAL) needs fresh
completions.
"""

from __future__ import annotations

from torch import Tensor

from models.method.registry import part
from models.method.token_batch import TokenBatch
from models.parts.shared.kl_term import KlSettings, kl_term


@part("weighted_likelihood")
class WeightedLikelihood(KlSettings):
    """Negative log-likelihood times advantage, token by token."""

    level = "token"

    def __call__(self, log_prob: Tensor, batch: TokenBatch) -> tuple[Tensor, dict[str, Tensor]]:
        """Compute the loss of each token, [tokens].

        Args:
            log_prob: log pi of each token, [tokens], nats; gradient flows.
            batch: advantages and the reference's log-probs, [tokens] each.
        """
        penalty, watch = kl_term(log_prob, batch, self)
        watch["cloned_share"] = (batch.advantage > 0).to(log_prob.detach())
        return penalty - batch.advantage * log_prob, watch

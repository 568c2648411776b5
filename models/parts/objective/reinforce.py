"""Policy gradient without a clip: REINFORCE (Williams 1992, "Simple Statistical Gradient-Following Algorithms").

loss = -w * A * log pi + beta * k3

w  = min(pi_old / mu, c)   truncated importance sampling: the engine that sampled (mu) is never exactly the
                           learner (pi_old); it does not follow the policy within a round
k3                         the KL estimator of `models.parts.shared.kl_term`, if there is a reference

E[grad loss] is the exact policy gradient for every advantage whose baseline does not depend on the completion itself.
With several steps a round the later ones are not bounded, so it is meant for one step a round.
"""

from __future__ import annotations

from torch import Tensor

from models.method.registry import part
from models.method.token_batch import TokenBatch
from models.parts.shared.importance import ImportanceSettings, importance_weight
from models.parts.shared.kl_term import KlSettings, kl_term


@part("reinforce")
class Reinforce(KlSettings, ImportanceSettings):
    """Log-prob times advantage, token by token."""

    level = "token"

    def __call__(self, log_prob: Tensor, batch: TokenBatch) -> tuple[Tensor, dict[str, Tensor]]:
        """Compute the loss of each token, [tokens]; `log_prob` is log pi of each, nats."""
        weight, watch = importance_weight(batch, self)
        penalty, of_kl = kl_term(log_prob, batch, self)
        return penalty - weight * batch.advantage * log_prob, watch | of_kl

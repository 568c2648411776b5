"""Policy gradient without a clip: REINFORCE (Williams 1992, "Simple Statistical Gradient-Following Algorithms").

loss = -w * A * log pi + beta * k3

w  = min(pi_old / mu, c)   truncated importance sampling: the engine that sampled (mu) is never exactly the
                           learner (pi_old); it does not follow the policy within a round
k3                         the KL estimator of `models.formulas.kl_term`, where a reference is wanted

E[grad loss] is the exact policy gradient for every advantage whose baseline does not depend on the completion itself.
With several steps a round nothing holds the later ones back, so one step a round is what it is made for.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import Field
from torch import Tensor

from models.formulas.importance import truncated_importance
from models.formulas.kl_term import add_kl
from models.loop.rollout import TokenBatch
from models.loop.slots import Objective
from models.parts import part


@part("reinforce")
class Reinforce(Objective):
    """Log-prob times advantage, token by token."""

    level = "token"
    kl: Annotated[float, Field(ge=0)] = 0.0
    """Weight of the KL term (beta); needs a reference. Zero only watches the KL."""
    importance_ceiling: Annotated[float, Field(gt=0)] = 2.0
    """Largest weight that corrects the engine's log-probs to the learner's."""

    def __call__(self, log_prob: Tensor, batch: TokenBatch) -> tuple[Tensor, dict[str, Tensor]]:
        """Loss of each token, [tokens].

        Args:
            log_prob: log pi of each token, [tokens], nats; gradient flows.
            batch: advantages and the log-probs under the engine, the old policy and the reference, [tokens] each.
        """
        weight = truncated_importance(batch.old, batch.behaviour, self.importance_ceiling)
        loss = -weight * batch.advantage * log_prob
        watch = {"importance_weight": weight, "engine_gap": (batch.old - batch.behaviour).abs()}
        loss, watch = add_kl(loss, watch, log_prob, batch, self.kl)
        return loss, {name: value.detach() for name, value in watch.items()}

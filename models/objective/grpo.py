"""Clipped policy gradient with a KL term to the reference: the objective of GRPO (arXiv 2402.03300).

loss = -w * min(rho * A, clip(rho, 1 - low, 1 + high) * A) + beta * k3

rho = pi / pi_old          the learner's own ratio; one on the first update of a round
w   = min(pi_old / mu, c)  truncated importance sampling: the engine that sampled (mu) is never exactly the
                           learner (pi_old), by precision or by staleness
k3  = exp(d) - 1 - d with d = log(reference / pi): the low-variance, never negative KL estimator
      (Schulman 2020); its gradient is taken through the samples' own log-probs, as the paper does

The fit takes a bonus of `entropy_bonus` for each nat of entropy off the loss, as a mean over all tokens however the
loss itself is averaged: where it is rewarded the policy keeps exploring (T1, arXiv 2501.11651; paper 89).
"""

from __future__ import annotations

from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor

from models.formulas.importance import truncated_importance
from models.formulas.kl_term import add_kl
from models.loop.rollout import TokenBatch
from models.loop.slots import Objective
from models.parts import part


@part("grpo")
class Grpo(Objective):
    """Clipped surrogate, token by token."""

    level = "token"
    clip_low: Annotated[float, Field(ge=0, le=1)] | None = 0.2
    """How far below one the ratio of a bad token may fall before it counts for no more; null: any."""
    clip_high: Annotated[float, Field(ge=0)] | None = 0.2
    """How far above one that of a good token may rise; null: any."""
    kl: Annotated[float, Field(ge=0)] = 0.01
    """Weight of the KL term (beta); needs a reference. Zero only watches the KL."""
    importance_ceiling: Annotated[float, Field(gt=0)] = 2.0
    """Largest weight that corrects the engine's log-probs to the learner's."""
    entropy_bonus: Annotated[float, Field(ge=0)] = 0.0
    """What a nat of the tokens' mean entropy is worth."""

    def __call__(self, log_prob: Tensor, batch: TokenBatch) -> tuple[Tensor, dict[str, Tensor]]:
        """Loss of each token, [tokens].

        Args:
            log_prob: log pi of each token, [tokens], nats; gradient flows.
            batch: advantages and the log-probs under the engine, the old policy and the reference, [tokens] each.
        """
        ratio = torch.exp(log_prob - batch.old)
        clipped = ratio.clamp(
            0.0 if self.clip_low is None else 1.0 - self.clip_low,
            None if self.clip_high is None else 1.0 + self.clip_high,
        )
        weight = truncated_importance(batch.old, batch.behaviour, self.importance_ceiling)
        surrogate = torch.minimum(ratio * batch.advantage, clipped * batch.advantage)
        loss = -weight * surrogate
        watch = {
            "clipped_share": (ratio * batch.advantage > clipped * batch.advantage).to(log_prob),
            "importance_weight": weight,
            "engine_gap": (batch.old - batch.behaviour).abs(),
        }
        loss, watch = add_kl(loss, watch, log_prob, batch, self.kl)
        return loss, {name: value.detach() for name, value in watch.items()}

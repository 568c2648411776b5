"""Posterior distillation: the policy's shares of a group are drawn to the posterior's (BRAIn, paper 17).

    p(y | x, good) ~ p0(y) exp(r(y) / beta)
    alpha_i ~ p(y_i | x, good) / q_i,   pi_i' ~ pi_i / q_i,   each summing to one over the group
    loss = sum_i alpha_i log(alpha_i / pi_i'),   gradient = -sum_i (alpha_i - pi_i') grad log pi_i

alpha is the posterior's self-normalised importance weight under the policy q that sampled; the policy's own weights pi'
are the baseline that reduces the variance. Derived here: the gradient is that of forward KL between the two sets of
shares, as a cross-entropy has it, so the loss is a true one, never negative, and zero exactly where the policy is
proportional to the posterior over the group. Two completions of which the posterior holds but one make it DPO with q as
the reference.
"""

from __future__ import annotations

import torch
from pydantic import PositiveFloat
from torch import Tensor

from models.method.objective import Objective
from models.method.registry import part
from models.method.token_batch import TokenBatch
from models.parts.shared.posterior import log_evidence, log_share_of_group


def log_posterior_weights(batch: TokenBatch, beta: float) -> Tensor:
    """Return log alpha of each completion, [completions], nats, no gradient; alpha sums to one over each group."""
    return log_share_of_group(log_evidence(batch, beta) - batch.sum_by_completion(batch.behaviour), batch)


@part("posterior_distillation")
class PosteriorDistillation(Objective):
    """Forward KL per group between the posterior's shares and the policy's; needs a reference, the prior."""

    level = "group"
    needs_reference = True
    beta: PositiveFloat = 0.1
    """Units of reward that make a completion e times likelier than the prior has it."""

    def __call__(self, log_prob: Tensor, batch: TokenBatch) -> tuple[Tensor, dict[str, Tensor]]:
        """Compute the loss of each group, [groups], nats.

        Args:
            log_prob: log pi of whole completions, [completions], nats; gradient flows.
            batch: rewards, groups, and the log-probs under the sampler and the prior, [tokens] each.
        """
        wanted = log_posterior_weights(batch, self.beta)
        own = log_share_of_group(log_prob - batch.sum_by_completion(batch.behaviour), batch)
        share = torch.exp(wanted)
        loss = batch.sum_by_group(share * (wanted - own))
        watch = {
            "effective_completions": 1.0 / batch.sum_by_group(share**2),
            "weight_moved": 0.5 * batch.sum_by_group((share - torch.exp(own)).abs()),
        }
        return loss, {name: value.detach() for name, value in watch.items()}

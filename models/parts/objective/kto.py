"""Prospect-theoretic optimisation: good answers and poor ones, not pairs (KTO, arXiv 2402.01306).

    loss = desirable * [1 - sigmoid(beta (log pi/ref - z))]        of an answer that is good
    loss = undesirable * [1 - sigmoid(beta (z - log pi/ref))]      of one that is not

z is the point from which people are assumed to count gains and losses: the KL of the policy to the reference, over all
prompts. An answer counts by its distance from z, less and less as the distance grows. The paper estimates z from
answers that belong to other prompts of the batch and lets no gradient through it; here z is the component of the reward
called `by`, computed once for a whole round before the first step (`log_ratio_baseline`), so that the loss of an answer
does not depend on the other answers of its micro-batch. With several steps a round z is as old as the round.
"""

from __future__ import annotations

import torch
from pydantic import NonNegativeFloat, PositiveFloat
from torch import Tensor

from models.base.bounds import Number
from models.method.objective import Objective
from models.method.registry import part
from models.method.token_batch import TokenBatch
from models.parts.shared.implied_rewards import implied_of_completions


@part("kto")
class Kto(Objective):
    """Loss per answer by its log-ratio relative to a point z; needs a reference, and a reward that holds z."""

    level = "completion"
    needs_reference = True
    beta: PositiveFloat = 0.1
    """Strength of the pull to the reference, as in DPO."""
    desirable: NonNegativeFloat = 1.0
    """Weight of good answers; together with `undesirable` it balances an unequal number of both kinds."""
    undesirable: NonNegativeFloat = 1.0
    """Weight of poor answers."""
    threshold: Number = 0.5
    """Total reward above which an answer is good."""
    by: str = "log_ratio_baseline"
    """The reward component that holds z, in nats."""

    def __call__(self, log_prob: Tensor, batch: TokenBatch) -> tuple[Tensor, dict[str, Tensor]]:
        """Compute the loss of each completion, [completions].

        Args:
            log_prob: log pi of whole completions, [completions], nats; gradient flows.
            batch: the reference's log-probs, [tokens], the rewards and z, [completions] each.

        Raises:
            UserError: no reward has the name `by`.
        """
        good = batch.reward > self.threshold
        lead = implied_of_completions(log_prob, batch, self.beta) - self.beta * batch.worth(self.by)
        loss = self._loss(torch.where(good, lead, -lead))
        watch = {"outcome_accuracy": ((lead > 0) == good).to(lead), "outcome_value": lead.detach()}
        return torch.where(good, self.desirable * loss, self.undesirable * loss), watch

    def _loss(self, lead: Tensor) -> Tensor:
        """Compute the loss of an answer that is by `lead` on the right side of z, [completions]."""
        return torch.sigmoid(-lead)

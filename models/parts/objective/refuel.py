"""Regress the difference of log-ratios to the difference of future rewards (REFUEL, paper 183, arXiv 2410.04612).

    loss of two branches = ( (log pi/pi_old (y) - log pi/pi_old (y')) / eta  -  (R - R') )^2

y and y' are turns that the old policy took at the same place, R and R' the rewards of the episodes that it continued
from there (rollouts `forked`); the common history of both cancels. The expected R is the old policy's Q, so the optimum
over all policies is pi = pi_old exp(eta Q) / Z in every state: the policy of highest Q less 1/eta of its KL to the old
one. No second model is fitted, as the policy itself represents Q. With a group of more than two the loss is the mean
over all pairs of its branches.
"""

from __future__ import annotations

import torch
from pydantic import PositiveFloat
from torch import Tensor

from models.method.objective import Objective
from models.method.registry import part
from models.method.token_batch import TokenBatch


@part("refuel")
class Refuel(Objective):
    """Squared error of relative returns, group by group."""

    level = "group"
    eta: PositiveFloat = 1.0
    """Change of the policy's log-ratio for a unit of reward, nats."""

    def __call__(self, log_prob: Tensor, batch: TokenBatch) -> tuple[Tensor, dict[str, Tensor]]:
        """Compute the mean over the pairs of each group, [groups].

        Args:
            log_prob: log pi of the trained tokens of each completion, [completions], nats; gradient flows.
            batch: log-probs when the round began, [tokens], and rewards, [completions].
        """
        error = (log_prob - batch.sum_by_completion(batch.old)) / self.eta - batch.reward
        apart = error - batch.of_group(batch.mean_by_group(error))
        members = batch.sum_by_group(torch.ones_like(error))
        # sum over pairs of (e_i - e_j)^2 = n * sum of (e_i - mean)^2, and there are n (n - 1) / 2 of them
        loss = 2 * batch.sum_by_group(apart.square()) / (members - 1).clamp(min=1)
        return loss, {"relative_error": loss.detach().sqrt()}

"""Mirror descent by a squared loss: the policy update of Kimi k1.5 (paper 66, arXiv 2501.12599).

    loss = (A - tau * l)^2 / (2 tau),   l = log pi / pi_old of whole completions,   A = r - mean of the group

pi_old is the policy when the round began. Derivation: the policy that maximises E[r] - tau * KL(pi || pi_old) obeys tau
* log pi / pi_old = r - tau * log Z, and the group's mean estimates the unknown constant tau * log Z; the loss is the
squared miss of that equation, for completions of whatever origin. Divided by 2 tau its gradient is

    -(A - tau * l) * grad log pi = -A * grad log pi + tau / 2 * grad l^2

which is REINFORCE on the first step of a round, with a growing pull back as the policy moves away.
"""

from __future__ import annotations

from pydantic import PositiveFloat
from torch import Tensor

from models.method.objective import Objective
from models.method.registry import part
from models.method.token_batch import TokenBatch


@part("mirror_descent")
class MirrorDescent(Objective):
    """Squared error per completion, relative to the policy at the round's beginning; needs no reference."""

    level = "completion"
    tau: PositiveFloat = 0.1
    """Strength of the pull to the policy at the beginning of the round: the weight of the KL to it."""

    def __call__(self, log_prob: Tensor, batch: TokenBatch) -> tuple[Tensor, dict[str, Tensor]]:
        """Compute the loss of each completion, [completions].

        Args:
            log_prob: log pi of whole completions, [completions], nats; gradient flows.
            batch: advantages and the log-probs when the round began, [tokens] each.
        """
        moved = log_prob - batch.sum_by_completion(batch.old)
        miss = batch.mean_by_completion(batch.advantage) - self.tau * moved
        return miss**2 / (2 * self.tau), {"moved": moved.detach().abs(), "miss": miss.detach().abs()}

"""Policy gradient of the KL-regularised preference game (Nash-MD-PG, arXiv 2312.00886; paper 49).

    loss = -( A - kl * log pi/ref ) * log pi,   A = P(y > y') - 1/2,   y ~ pi,  y' ~ pi^(1 - share) ref^share

log-probs are those of whole completions, and the term in brackets has no gradient. As the mean of grad log pi under pi
is zero, the expected gradient is that of

    E[ P(y > y') ] - kl * KL(pi || ref)          with the opponent y' held fixed

so it vanishes where pi is proportional to ref exp( P(. > mixture) / kl ), and with a share of 0 that is the Nash
equilibrium of the game in which both sides pay for their KL. The formula is that of "Nash Learning from Human
Feedback"; the preference comes as a reward (`win_rate` against opponents) and 1/2 is subtracted as a constant
advantage. It is on-policy: right for one optimiser step a round, on completions of the round's own policy.
"""

from __future__ import annotations

from pydantic import NonNegativeFloat
from torch import Tensor

from models.method.objective import Objective
from models.method.registry import part
from models.method.token_batch import TokenBatch
from models.parts.shared.implied_rewards import implied_of_completions


@part("nash_md")
class NashMd(Objective):
    """REINFORCE with the log-ratio to the reference inside the reward; needs a reference."""

    level = "completion"
    needs_reference = True
    on_policy_only = True
    """Completions of an earlier policy are not corrected."""
    kl: NonNegativeFloat = 0.01
    """Weight of the KL to the reference (tau), in units of preference per nat."""

    def __call__(self, log_prob: Tensor, batch: TokenBatch) -> tuple[Tensor, dict[str, Tensor]]:
        """Compute the loss of each completion, [completions].

        Args:
            log_prob: log pi of whole completions, [completions], nats; gradient flows.
            batch: advantages, the same at each token of a completion, and the reference's log-probs, [tokens] each.
        """
        ratio = implied_of_completions(log_prob.detach(), batch, 1.0)
        value = batch.mean_by_completion(batch.advantage) - self.kl * ratio
        return -value * log_prob, {"kl": ratio, "regularised_value": value}

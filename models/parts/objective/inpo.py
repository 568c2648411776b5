"""Iterative Nash policy optimisation (INPO, arXiv 2407.00617; paper 326): each round is a step of no-regret learning.

    loss = (h - 1 / (2 eta))^2
    h    = log pi/held (better) - log pi/held (worse),   held = old^(1 - share) ref^share

old is the policy when the round began, which wrote the pairs; ref stays. "Iterative Nash Policy Optimization: Aligning
LLMs with General Preferences via No-Regret Learning" writes it with tau = share * eta. Where y beats y' with the chance
P(y > y') and both come from old, the loss of a round is least at

    pi(y)  proportional to  old(y)^(1 - share) ref(y)^share exp( P(y > old) / eta )

which is a step of mirror descent, made without an estimate of any P(y > old). A policy that its own round leaves as it
is satisfies pi(y) ~ ref(y) exp( P(y > pi) / tau ): the Nash policy of the game in which both sides pay tau times their
KL to the reference. With a share of 1 the loss is that of IPO.
"""

from __future__ import annotations

from pydantic import PositiveFloat
from torch import Tensor

from models.base.bounds import Share
from models.method.objective import Objective
from models.method.registry import part
from models.method.token_batch import TokenBatch
from models.parts.shared.implied_rewards import implied_of_pairs, watch_margins


@part("inpo")
class Inpo(Objective):
    """Squared distance per pair of a margin from its target 1 / (2 eta); needs a fixed reference."""

    level = "pair"
    needs_reference = True
    eta: PositiveFloat = 0.2
    """Strength of the pull to the round's first policy: the target of a round's margin is 1 / (2 eta)."""
    reference_share: Share = 0.25
    """Share of the reference in that pull (tau / eta), the rest being the first policy's. 0 ignores the reference."""

    def __call__(self, log_prob: Tensor, batch: TokenBatch) -> tuple[Tensor, dict[str, Tensor]]:
        """Compute the loss of each pair, [pairs], nats squared.

        Args:
            log_prob: log pi of the better and the worse completion, [pairs, 2], nats; gradient flows.
            batch: log-probs under the reference and under the policy when the round began, [tokens] each.
        """
        to_reference, to_old = implied_of_pairs(log_prob, batch, 1.0), log_prob - batch.by_pair(batch.old)
        held = (1.0 - self.reference_share) * to_old + self.reference_share * to_reference
        margin = held[:, 0] - held[:, 1]
        return (margin - 0.5 / self.eta) ** 2, watch_margins(margin, to_reference)

"""Identity preference optimisation (IPO, arXiv 2310.12036), and with fresh pairs its online forms (paper 348).

    loss = (h - 1 / (2 beta))^2,   h = log pi/ref (better) - log pi/ref (worse)

With `average: tokens` both log-ratios are means over the tokens of their answers, as in TRL on the advice of the
authors of IPO: the target margin then applies to every token, whatever the length of the answer. The fixed points below
are those of sums; with means they are reached only if all answers are equally long.

A regression with a finite target: certain preferences do not drive the policy away from the reference without bound, as
they do under a logistic loss. "Human Alignment of Large Language Models through Online Preference Optimisation" (arXiv
2403.08635) shows what the loss means on pairs that are drawn afresh. Where y beats y' with the chance P(y > y'), the
mean over both labels of a pair moves h(y, y') towards (2 P(y > y') - 1) / (2 beta), and so with both answers drawn from
mu the gradient vanishes at

    pi(y)  proportional to  ref(y) exp( P(y > mu) / beta )

    online IPO   mu = pi                                 the Nash equilibrium of the KL-regularised preference game
    IPO-MD       mu = pi^(1 - share) ref^share           the fixed point of Nash-MD
"""

from __future__ import annotations

from typing import Literal

from pydantic import PositiveFloat
from torch import Tensor

from models.method.objective import Objective
from models.method.registry import part
from models.method.token_batch import TokenBatch
from models.parts.shared.implied_rewards import implied_of_pairs, watch_margins
from models.parts.shared.pair_loss import mean_over_tokens


@part("ipo")
class Ipo(Objective):
    """Squared distance per pair of the margin from a finite target; needs a reference."""

    level = "pair"
    needs_reference = True
    beta: PositiveFloat = 0.1
    """Strength of the pull to the reference: the weight of the game's KL term. The target margin is 1 / (2 beta)."""
    average: Literal["none", "tokens"] = "none"
    """none: log-ratios of whole answers; tokens: divided by the number of trained tokens of each."""

    def __call__(self, log_prob: Tensor, batch: TokenBatch) -> tuple[Tensor, dict[str, Tensor]]:
        """Compute the loss of each pair, [pairs], nats squared.

        Args:
            log_prob: log pi of the better and the worse completion, [pairs, 2], nats; gradient flows.
            batch: the reference's log-probs, [tokens].
        """
        ratio = implied_of_pairs(log_prob, batch, 1.0)
        if self.average == "tokens":
            ratio = mean_over_tokens(ratio, batch)
        margin = ratio[:, 0] - ratio[:, 1]
        return (margin - 0.5 / self.beta) ** 2, watch_margins(margin, ratio)

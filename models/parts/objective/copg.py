"""Contrastive policy gradient: any reward, any completions, no importance weights (CoPG; paper 47, arXiv 2406.19185).

    loss of a pair = (d - beta * L)^2 / (4 beta),   loss of a group = mean over its pairs

d = r_i - r_j, and L = l_i - l_j with l = log pi / reference of whole completions. With R = r - beta * l the gradient is

    -(R_i - R_j) / 2 * grad(log pi_i - log pi_j)

each completion is the other's baseline. Derivation (ours): the loss is zero on all pairs exactly where log pi /
reference = r / beta + a constant of the prompt, which is the best policy under the KL to the reference; so the optimum
is the same for completions of any sampler. Completions drawn from pi itself make the expected gradient that of E[r] -
beta * KL(pi || reference), and rewards of a preference that differ by 1/2 make beta / 4 of IPO's loss (L - 1 / (2
beta))^2.
"""

from __future__ import annotations

from pydantic import PositiveFloat
from torch import Tensor

from models.method.objective import Objective
from models.method.registry import part
from models.method.token_batch import TokenBatch
from models.parts.shared.implied_rewards import implied_of_completions
from models.parts.shared.within_groups import mean_over_pairs, pairs_within


@part("copg")
class Copg(Objective):
    """Squared error over every pair of a group; reads the reward itself and needs no advantage."""

    level = "group"
    needs_reference = True
    beta: PositiveFloat = 0.05
    """Strength of the pull to the reference: the weight of the KL in the maximised objective."""

    def __call__(self, log_prob: Tensor, batch: TokenBatch) -> tuple[Tensor, dict[str, Tensor]]:
        """Compute the loss of each group, [groups].

        Args:
            log_prob: log pi of whole completions, [completions], nats; gradient flows.
            batch: rewards and groups, [completions]; log-probs under the reference, [tokens].
        """
        reward = batch.reward
        regularised = reward - implied_of_completions(log_prob, batch, self.beta)
        pairs = pairs_within(batch.group)
        first, second = pairs.unbind(-1)
        contrast = regularised[first] - regularised[second]
        watch = {
            "pair_difference": (reward[first] - reward[second]).abs(),
            "pair_contrast": contrast.abs(),
        }
        means = {name: mean_over_pairs(value.detach(), pairs, batch.group) for name, value in watch.items()}
        return mean_over_pairs(contrast**2 / (4 * self.beta), pairs, batch.group), means

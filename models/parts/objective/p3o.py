"""Pairwise proximal policy optimisation: a policy gradient on differences (P3O; paper 74, arXiv 2310.00212).

    loss of a pair = -w * min(d / 2 * L, d / 2 * clip(L, -c, c)),   loss of a group = mean over its pairs

    d = r_i - r_j              the rewards' difference, KL included: r - beta * log(pi_old / reference)
    L = l_i - l_j              the difference of l = log pi / pi_old of whole completions; zero when a round begins
    w = min(pi_i pi_j / (mu_i mu_j), ceiling)   the chance of drawing the pair, over that of its sampler; no gradient

Derivation (ours, from the identity that the paper rests on): for two independent completions E[(r_i - r_j) / 2 *
grad(log pi_i - log pi_j)] is the policy gradient, because E[grad log pi] = 0 removes the mixed terms. w makes this hold
for any sampler of the pair: the engine (mu), which by precision or staleness is never exactly the learner, and in later
steps of a round the policy of its first. The clip is PPO's, put on the joint log-ratio of the
pair: one that has moved far enough in the direction of its difference moves no further. It is measured from the
beginning of the round, so that differences between engine and learner stop no pair. A constant that a prompt adds to
all its rewards cancels before anything is learned.
"""

from __future__ import annotations

import torch
from pydantic import NonNegativeFloat, PositiveFloat
from torch import Tensor

from models.method.objective import Objective
from models.method.registry import part
from models.method.token_batch import TokenBatch
from models.parts.shared.importance import truncated_importance
from models.parts.shared.within_groups import mean_over_pairs, pairs_within


@part("p3o")
class P3o(Objective):
    """Policy gradient over every pair of a group; reads the reward itself and needs no advantage."""

    level = "group"
    clip: PositiveFloat = 0.2
    """Distance by which the log-ratio of a pair may move in a round (c), nats."""
    kl: NonNegativeFloat = 0.0
    """Weight of the KL penalty within the reward (beta); needs a reference."""
    importance_ceiling: PositiveFloat = 2.0
    """Largest weight of a pair that an earlier policy sampled."""

    def __call__(self, log_prob: Tensor, batch: TokenBatch) -> tuple[Tensor, dict[str, Tensor]]:
        """Compute the loss of each group, [groups].

        Args:
            log_prob: log pi of whole completions, [completions], nats; gradient flows.
            batch: rewards and groups, [completions]; log-probs under engine, old policy and reference, [tokens].
        """
        reward = batch.reward
        if batch.reference is not None:
            reward = reward - self.kl * batch.sum_by_completion(batch.old - batch.reference)
        pairs = pairs_within(batch.group)
        first, second = pairs.unbind(-1)
        ratio = log_prob - batch.sum_by_completion(batch.old)
        moved = ratio[first] - ratio[second]
        behaviour = batch.sum_by_completion(batch.behaviour)[pairs].sum(-1)
        weight = truncated_importance(log_prob[pairs].sum(-1), behaviour, self.importance_ceiling)
        difference = (reward[first] - reward[second]) / 2
        held = moved.clamp(-self.clip, self.clip)
        loss = -weight * torch.minimum(difference * moved, difference * held)
        watch = {
            "pair_difference": 2 * difference.abs(),
            "pair_moved": moved.abs(),
            "clipped_share": (difference * moved > difference * held).to(log_prob),
            "importance_weight": weight,
        }
        means = {name: mean_over_pairs(value.detach(), pairs, batch.group) for name, value in watch.items()}
        return mean_over_pairs(loss, pairs, batch.group), means

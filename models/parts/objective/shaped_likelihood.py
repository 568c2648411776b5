"""Shaped probability for texts that the policy did not sample, next to its samples (Critique-GRPO, paper 11).

    sampled tokens      the surrogate of GRPO; the published run does not clip it
    all other tokens    loss = -f(pi) * A,   f(p) = p / (p + gamma)

Refinements by feedback, explanations and answers of the data were not drawn from pi(. | x), and their importance ratio
is not known. A likelihood, -A log pi, pulls at unlikely tokens without a bound: its gradient is A whatever p is. The
probability itself, gamma to infinity, hardly pulls at all where p is small: its gradient is p A. With f it is

    d f / d log p = gamma p / (p + gamma)^2

which is largest, one fourth, at p = gamma and decreases on both sides: tokens that the policy knows already are left
unchanged, those of a probability near gamma are learned, and tokens that it considers impossible do not disrupt it.
They have neither a clip nor pi_old. The form is that of LUFFY (arXiv 2504.14945); gamma 0.1 as published.
"""

from __future__ import annotations

import torch
from pydantic import PositiveFloat
from torch import Tensor

from models.method.registry import part
from models.method.token_batch import TokenBatch
from models.parts.objective.grpo import Grpo
from models.parts.shared.origins import off_policy


@part("shaped_likelihood")
class ShapedLikelihood(Grpo):
    """Loss per token: that of GRPO for samples, -f(pi) A for all other tokens."""

    gamma: PositiveFloat = 0.1
    """Probability at which a token that was not sampled is learned most."""

    def __call__(self, log_prob: Tensor, batch: TokenBatch) -> tuple[Tensor, dict[str, Tensor]]:
        """Compute the loss of each token, [tokens].

        Args:
            log_prob: log pi of each token, [tokens], nats; gradient flows.
            batch: what GRPO reads, and the origins, [completions].
        """
        own, watch = super().__call__(log_prob, batch)
        others = off_policy(batch)[batch.completion]
        chance = torch.exp(log_prob)
        loss = torch.where(others, -chance / (chance + self.gamma) * batch.advantage, own)
        watch["off_policy_share"] = others.to(own)
        watch["off_policy_chance"] = torch.where(others, chance.detach(), torch.zeros_like(own))
        return loss, {name: value.detach() for name, value in watch.items()}

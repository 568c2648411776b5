"""Answers of the data next to own samples, by multiple importance sampling (RL-PLUS, arXiv 2508.00222; paper 266).

    sampled tokens        the surrogate of GRPO; the published run does not clip it
    tokens of the data    loss = -ratio * explore * A
    ratio   = 2 pi / (author + pi_old)     the balance heuristic of two samplers (Veach and Guibas 1995)
    author  = (1 - doubt) * pi_old + doubt * anybody
    explore = (1 - pi)^curiosity           no gradient: tokens that the policy finds unlikely, though right, count most

Dividing by the author alone would explode on texts that the policy also writes but the author seldom wrote; dividing by
pi_old alone would be biased. With the mixture of both as denominator no ratio exceeds 2 pi / pi_old, and the mean over
as many draws of either would be exactly the policy's expectation, if all were weighed so and the author known. The loss
promises less: only answers of the data are weighed so, samples as in GRPO, and the numbers of both may differ; ratios
are those of single tokens, which leaves the choice of the beginning uncorrected; and the author's log-probs are not
known. They are replaced by the mean of two guesses: that the author is the policy itself, and that the author was
certain of any token: 0.5 (pi_old + 1) with the constants of the published code, which are the defaults here, as is the
square root of 1 - pi. So with pi = pi_old the ratio runs from 0 for unlikely tokens to 1 for certain ones. A
distribution cannot give one to every token, so `anybody` is a free constant; one over the vocabulary would be a proper
distribution, and makes the ratio nearly 1 for all but the most unlikely tokens.

The worse answer of a preference is an answer of the data too: its advantage pushes it away.
"""

from __future__ import annotations

import math
from typing import Annotated

import torch
from pydantic import Field, NonNegativeFloat
from torch import Tensor

from models.base.bounds import Share
from models.method.registry import part
from models.method.token_batch import TokenBatch
from models.parts.objective.grpo import Grpo
from models.parts.shared.origins import of_the_data


def multiple_importance(log_prob: Tensor, old: Tensor, author: Tensor) -> Tensor:
    """Compute pi / (half author + half pi_old) of each token, [tokens]; gradient to `log_prob`.

    The arguments are log-probs, in nats.
    """
    return torch.exp(log_prob - torch.logaddexp(old, author) + math.log(2.0))


@part("multiple_importance")
class MultipleImportance(Grpo):
    """Loss per token, importance-weighted on answers of the data; needs `rollouts: {name: sample_beside_data}`."""

    doubt: Share = 0.5
    """Weight of the guess that nothing is known about the author, against the guess that the author is the policy."""
    anybody: Annotated[float, Field(gt=0, le=1)] = 1.0
    """Probability that every token has for an unknown author. The published value is 1; one over the vocabulary would
    be a proper distribution."""
    curiosity: NonNegativeFloat = 0.5
    """Exponent by which likely tokens of the data lose weight; 0 keeps all weights."""

    def __call__(self, log_prob: Tensor, batch: TokenBatch) -> tuple[Tensor, dict[str, Tensor]]:
        """Compute the loss of each token, [tokens].

        Args:
            log_prob: log pi of each token, [tokens], nats; gradient flows.
            batch: what GRPO reads, and the origins, [completions].
        """
        own, watch = super().__call__(log_prob, batch)
        known = of_the_data(batch)[batch.completion]
        guess = (1.0 - self.doubt) * torch.exp(batch.old) + self.doubt * self.anybody
        ratio = multiple_importance(log_prob, batch.old, guess.log())
        explore = (1.0 - torch.exp(log_prob.detach())).clamp(min=0.0) ** self.curiosity
        loss = torch.where(known, -ratio * explore * batch.advantage, own)
        watch["data_ratio"] = torch.where(known, ratio.detach(), torch.ones_like(own))
        watch["exploration"] = torch.where(known, explore, torch.ones_like(own))
        return loss, {name: value.detach() for name, value in watch.items()}

"""Data of others beside one's own samples, by multiple importance sampling (RL-PLUS, paper 266).

    sampled tokens        the clipped surrogate of GRPO
    demonstrated tokens   loss = -ratio * explore * A
    ratio   = 2 pi / (author + pi_old)     the balance heuristic of two samplers (Veach and Guibas 1995)
    author  = (1 - doubt) * pi_old + doubt * uniform
    explore = (1 - pi)^curiosity           no gradient: what the policy holds for unlikely, though right, counts most

Dividing by the author alone would explode where he writes what the policy also writes but seldom wrote himself;
dividing by pi_old alone would be biased. With the mixture of both as denominator, the mean over as many samples of
either is exactly the policy's expectation, and no ratio exceeds 2 pi / pi_old. Nobody knows the author's log-probs: his
stand-in is the mean guess of one who doubts whether he is the policy itself or anybody. The form of the guess and of
`explore` is derived here.
"""

from __future__ import annotations

import math
from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor

from models.loop.rollout import TokenBatch
from models.objectives.grpo import Grpo
from models.parts import part


def multiple_importance(log_prob: Tensor, old: Tensor, author: Tensor) -> Tensor:
    """pi / (half author + half pi_old) of each token, [tokens], from log-probs in nats; gradient to `log_prob`."""
    return torch.exp(log_prob - torch.logaddexp(old, author) + math.log(2.0))


@part("objective", "multiple_importance")
class MultipleImportance(Grpo):
    """One loss a token; needs `rollouts: {name: sample_beside_data}`."""

    doubt: Annotated[float, Field(ge=0, le=1)] = 0.5
    """Chance that the author of the data writes anything whatever, and not what the policy writes."""
    uniform: Annotated[float, Field(gt=0, le=1)] = 0.002
    """Probability of a token where anything may be written: one over the vocabulary."""
    curiosity: Annotated[float, Field(ge=0)] = 1.0
    """How much likely tokens of the data lose of their weight; 0 leaves all theirs."""

    def __call__(self, log_prob: Tensor, batch: TokenBatch) -> tuple[Tensor, dict[str, Tensor]]:
        """Loss of each token, [tokens].

        Args:
            log_prob: log pi of each token, [tokens], nats; gradient flows.
            batch: what GRPO reads, and the origins, [completions].
        """
        own, watch = super().__call__(log_prob, batch)
        demonstrated = batch.from_origins("demonstration")[batch.completion]
        guess = (1.0 - self.doubt) * torch.exp(batch.old) + self.doubt * self.uniform
        ratio = multiple_importance(log_prob, batch.old, guess.log())
        explore = (1.0 - torch.exp(log_prob.detach())).clamp(min=0.0) ** self.curiosity
        loss = torch.where(demonstrated, -ratio * explore * batch.advantage, own)
        watch["demonstrated_ratio"] = torch.where(demonstrated, ratio.detach(), torch.ones_like(own))
        watch["exploration"] = torch.where(demonstrated, explore, torch.ones_like(own))
        return loss, {name: value.detach() for name, value in watch.items()}

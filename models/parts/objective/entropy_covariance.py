"""Control of the tokens that reduce the policy's entropy most: Clip-Cov and KL-Cov (arXiv 2505.22617).

    cov_t = (A_t - mean A) * (log pi_old_t - mean log pi_old)      means over all tokens of the round

The entropy of a softmax policy falls, to first order, by the step size times the covariance of log-probs and
advantages: likely tokens of high advantage reduce it, and a few of them most of it. Clip-Cov takes some of these out of
the gradient, drawn at random among those whose covariance is between two bounds. KL-Cov keeps them in the gradient and
pulls those of highest covariance back to the policy at the beginning of the round:

    Clip-Cov   loss = GRPO's, 0 where drawn
    KL-Cov     loss = -w * rho * A, + pull * |log rho| where chosen,   rho = pi / pi_old, without a clip

The covariance is computed once a round, under the policy as it began; published code computes it again at each step,
from the tokens of one micro-batch.
"""

from __future__ import annotations

from typing import Annotated

import torch
from pydantic import Field, NonNegativeFloat
from torch import Tensor

from models.base.bounds import Number, Share
from models.base.seeds import seed_of
from models.method.objective import RoundTokens, highest
from models.method.registry import part
from models.method.token_batch import TokenBatch
from models.parts.objective.grpo import Grpo
from models.parts.shared.clipped_ratio import clipped
from models.parts.shared.importance import ImportanceSettings, importance_weight
from models.parts.shared.kl_term import KlSettings, kl_term


def covariance(advantage: Tensor, log_prob: Tensor) -> Tensor:
    """Compute each token's part of the covariance of advantages and log-probs, [tokens]; its mean is the covariance."""
    return (advantage - advantage.mean()) * (log_prob - log_prob.mean())


@part("clip_cov")
class ClipCov(Grpo):
    """GRPO's surrogate without some tokens of high covariance."""

    kl: NonNegativeFloat = 0.0
    clip_low: Share | None = 1.0
    clip_high: NonNegativeFloat | None = 1.0
    share: Annotated[float, Field(gt=0, le=1)] = 0.0002
    """Largest share of a round's tokens that are left out; at least one token is, if any is between the bounds."""
    covariance_low: Number = 1.0
    """Lower bound, exclusive, of the covariance of tokens that may be left out."""
    covariance_high: Number = 5.0
    """Upper bound, exclusive."""

    def mark(self, tokens: RoundTokens) -> Tensor:
        """Mark the tokens that are left out, [tokens], bool.

        The round's number determines the draw, so a resumed run draws the same.
        """
        part_of = covariance(tokens.advantage, tokens.log_prob)
        able = ((part_of > self.covariance_low) & (part_of < self.covariance_high)).nonzero().squeeze(-1)
        generator = torch.Generator().manual_seed(seed_of(tokens.round_number, "clip_cov"))
        drawn = able[torch.randperm(len(able), generator=generator)[: max(1, int(self.share * len(part_of)))]]
        marked = torch.zeros_like(part_of, dtype=torch.bool)
        marked[drawn] = True
        return marked

    def __call__(self, log_prob: Tensor, batch: TokenBatch) -> tuple[Tensor, dict[str, Tensor]]:
        """Compute the loss of each token, [tokens]; `log_prob` is log pi of each, nats."""
        surrogate, watch = clipped(torch.exp(log_prob - batch.old), batch.advantage, self)
        surrogate = torch.where(batch.marked, 0.0, surrogate)
        watch["marked_share"] = batch.marked.to(surrogate)
        weight, of_weight = importance_weight(batch, self)
        penalty, of_kl = kl_term(log_prob, batch, self)
        return penalty - weight * surrogate, watch | of_weight | of_kl


@part("kl_cov")
class KlCov(KlSettings, ImportanceSettings):
    """The surrogate without a clip, and a pull back at the tokens of highest covariance."""

    level = "token"
    share: Annotated[float, Field(gt=0, le=1)] = 0.002
    """Share of a round's tokens that are pulled back."""
    pull: NonNegativeFloat = 1.0
    """Cost per nat of log-ratio to the policy at the beginning of the round, at these tokens."""

    def mark(self, tokens: RoundTokens) -> Tensor:
        """Mark the tokens of highest covariance, [tokens], bool."""
        return highest(covariance(tokens.advantage, tokens.log_prob), self.share)

    def __call__(self, log_prob: Tensor, batch: TokenBatch) -> tuple[Tensor, dict[str, Tensor]]:
        """Compute the loss of each token, [tokens]; `log_prob` is log pi of each, nats."""
        log_ratio = log_prob - batch.old
        ratio = torch.exp(log_ratio)
        free = ratio * batch.advantage
        surrogate = torch.where(batch.marked, free - self.pull * log_ratio.abs(), free)
        watch = {"marked_share": batch.marked.to(free), "ratio": ratio.detach()}
        weight, of_weight = importance_weight(batch, self)
        penalty, of_kl = kl_term(log_prob, batch, self)
        return penalty - weight * surrogate, watch | of_weight | of_kl

"""A policy that ranks: completions are ordered by draws from their log-probs, and rewarded for the order (paper 296).

    s_i   = (mean log pi of the tokens of completion i) / temperature    the score of a completion
    P     Plackett-Luce over the s_i of a group                          models.parts.shared.plackett_luce
    A_i   = 1/N sum_n (U_n - mean of the other U) d log P(ranking n) / d s_i / temperature

U is nDCG@k by the rewards, less the least of the group if that is negative. The policy's gradient under these
advantages is REINFORCE's for the expected nDCG of its own rankings, with the other rankings as the baseline (Neural
PG-RANK, "Policy-Gradient Training of Language Models for Ranking", arXiv 2310.04407). The score learns, whichever
source wrote the completions: the policy, the data or a search.

A_i is the weight of the mean log-prob of a completion, so an objective with the gradient of A log pi, averaged over the
tokens of each completion and taken in one step a round, is exact: `reinforce` with
`schedule.normalisation: completion`.
"""

from __future__ import annotations

from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor

from models.base.bounds import Positive, Temperature
from models.base.seeds import seed_of
from models.method.advantage import CompletionAdvantage
from models.method.registry import part
from models.method.resources import RunResources
from models.method.scored import Scored
from models.parts.shared.plackett_luce import discounted_gain, draw_rankings, score_gradient
from models.parts.shared.written_tokens import written_rows


def ranking_advantages(
    scores: Tensor, gains: Tensor, first: int, count: int, generator: torch.Generator
) -> tuple[Tensor, Tensor]:
    """Estimate d expected nDCG / d scores, [things], and the mean nDCG, a scalar, from sampled rankings; both float64.

    The estimate has a leave-one-out baseline over the `count` rankings.

    Args:
        scores: scores of the things, [things].
        gains: relevance of each, [things], >= 0.
        first: number of places that count.
        count: rankings, 2 or more.
        generator: source of the random draws.
    """
    rankings = draw_rankings(scores, count, generator)
    worth = discounted_gain(gains, rankings, first)
    above = (worth - worth.mean()) * count / (count - 1)
    return (above[:, None] * score_gradient(scores, rankings)).mean(0), worth.mean()


@part("ranking")
class Ranking(CompletionAdvantage):
    """Gradient of the expected nDCG of the group's sampled rankings with respect to a completion's score."""

    needs_group = True
    rankings: Annotated[int, Field(ge=2, le=65536)] = 64
    """Rankings drawn per group (N)."""
    first: Positive = 10
    """Places of a ranking that count (k of nDCG@k)."""
    temperature: Temperature = 1.0
    """Divisor of the scores: the higher, the more rankings are tried."""

    def of_completions(self, resources: RunResources, scored: Scored) -> Tensor:
        """Compute advantages, [completions]; those of a group add up to zero."""
        groups, rollouts = scored.groups, scored.rollouts
        rows = written_rows(resources.readings.policy(rollouts), rollouts)
        means = [row.detach().double().mean().cpu() for row in rows]
        scores = torch.stack(means) / self.temperature if means else torch.zeros(0)
        seed = seed_of(resources.seed, f"rankings {resources.learner.updates}")
        generator = torch.Generator().manual_seed(seed)
        advantages = torch.zeros(len(scores), dtype=torch.float64)
        for number in groups.unique().tolist():
            members = (groups == number).nonzero().squeeze(1)
            gains = scored.rewards[members].double()
            gains = gains - gains.min().clamp(max=0.0)
            advantages[members], _ = ranking_advantages(scores[members], gains, self.first, self.rankings, generator)
        return (advantages / self.temperature).to(scored.rewards)

"""Typicality of an answer under the policy that samples (WPO's sampled alignment, arXiv 2406.11827).

    t = mean over the tokens of [log pi(token) - log sum over v of pi(v)^2]

The sum of pi(v)^2 is the expected probability of a token drawn from pi. If the policy is certain, an unlikely token
counts much; if it is not, little. The policy is read at the start of the round, once for all of its answers.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from models.base.bounds import Number
from models.method.registry import part
from models.method.resources import RunResources
from models.method.reward import Reward
from models.method.rollout import Rollout
from models.parts.shared.next_token import at_written_tokens
from models.parts.shared.written_tokens import written_rows


@part("typicality")
class Typicality(Reward):
    """Typicality of answers under the policy: a weight for `wpo`, rarely a reward."""

    reads_learner = True

    weight: Number = 0.0
    """Zero: it weights a pair, and is not a reward of a completion."""

    def __call__(self, resources: RunResources, rollouts: Sequence[Rollout]) -> Tensor:
        """Return the mean over each completion's tokens, [completions], nats."""
        expected = at_written_tokens(
            resources, rollouts, resources.learner.distribution, lambda block: (2.0 * block).logsumexp(-1)
        )
        known = written_rows(resources.readings.policy(rollouts), rollouts)
        gaps = [(mine.double() - other.double()).mean().cpu() for mine, other in zip(known, expected, strict=True)]
        return torch.stack(gaps).float()

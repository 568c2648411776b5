"""How much an answer looks like one that the policy draws itself (WPO's sampled alignment, arXiv 2406.11827).

    t = mean over the tokens of [log pi(token) - log sum over v of pi(v)^2]

sum of pi(v)^2 is the mean probability that a token drawn from pi has. Where the policy is sure, an unlikely token
counts much; where it is not, little. Read with the policy as the round begins, once for all of its answers.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from models.bounds import Number
from models.formulas.next_token import at_written_tokens
from models.formulas.written_tokens import written_rows
from models.loop.rollout import Rollout
from models.loop.slots import Reward
from models.loop.world import World
from models.parts import part


@part("typicality")
class Typicality(Reward):
    """How typical of the policy its answers are: a weight for `wpo`, rarely a reward."""

    reads_learner = True

    weight: Number = 0.0
    """Zero: it says how far a pair is to be believed, not what a completion is worth."""

    def __call__(self, world: World, rollouts: Sequence[Rollout]) -> Tensor:
        """Mean over each completion's tokens, [completions], nats."""
        expected = at_written_tokens(
            world, rollouts, world.learner.distribution, lambda block: (2.0 * block).logsumexp(-1)
        )
        known = written_rows(world.readings.policy(rollouts), rollouts)
        gaps = [(mine.double() - other.double()).mean().cpu() for mine, other in zip(known, expected, strict=True)]
        return torch.stack(gaps).float()

"""Length penalty among the completions of a prompt; only right ones gain by it (Kimi k1.5, paper 66, arXiv 2501.12599).

    lambda = 1/2 - (length - shortest) / (longest - shortest)      within the group, so in [-1/2, 1/2]
    value  = lambda for a right answer, min(0, lambda) for a wrong one; 0 if all are of equal length

A wrong answer earns nothing by being short, and loses by being long.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from models.answers.exact import solves
from models.method.registry import part
from models.method.resources import RunResources
from models.method.reward import Reward
from models.method.rollout import Rollout


@part("length_penalty")
class LengthPenalty(Reward):
    """Reward by length between the shortest and the longest completion of the same prompt in the round."""

    needs_answers = True

    def __call__(self, resources: RunResources, rollouts: Sequence[Rollout]) -> Tensor:
        """Return values in [-1/2, 1/2], [completions]."""
        shortest: dict[int, int] = {}
        longest: dict[int, int] = {}
        for rollout in rollouts:
            length = rollout.written_tokens
            shortest[rollout.group] = min(length, shortest.get(rollout.group, length))
            longest[rollout.group] = max(length, longest.get(rollout.group, length))

        def value(rollout: Rollout) -> float:
            least = shortest[rollout.group]
            spread = longest[rollout.group] - least
            if not spread:
                return 0.0
            brevity = 0.5 - (rollout.written_tokens - least) / spread
            return brevity if solves(rollout) else min(0.0, brevity)

        return torch.tensor([value(rollout) for rollout in rollouts])

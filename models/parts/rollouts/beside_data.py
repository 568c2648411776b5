"""Sample from the policy, and add answers from the data to the samples of the same prompt.

For methods that learn from both at once (imitation together with reinforcement, self-play against the data).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import torch

from models.base.bounds import Positive
from models.base.seeds import choice_seed, round_seed
from models.method.problem import Problem
from models.method.registry import part
from models.method.resources import RunResources
from models.method.rollout import Rollout
from models.parts.rollouts.dataset import as_rollout
from models.parts.rollouts.sample import Sample, draw


@part("sample_beside_data")
class BesideData(Sample):
    """Samples of the policy and answers from the data. Set under `rollouts:`."""

    reads: Literal["preferences", "demonstrations"] = "demonstrations"  # type: ignore[misc]
    """Kind of answers that are added to the samples."""
    known: Positive = 1
    """Answers from the data per prompt, drawn again in each round if there are more."""

    def largest_group(self, problems: Sequence[Problem] = ()) -> int:
        """Return the number of samples and answers."""
        return self.group_size + self.known

    def __call__(self, resources: RunResources, problems: Sequence[Problem], round_number: int) -> list[Rollout]:
        """Return samples, then answers from the data, prompt by prompt, [prompts * (G + known)]."""
        seed = round_seed(resources.seed, round_number)
        sampled = draw(resources, problems, self.sampling, seed)
        order = torch.Generator().manual_seed(choice_seed(seed))
        rollouts: list[Rollout] = []
        for number, problem in enumerate(problems):
            rollouts += sampled[number * self.group_size : (number + 1) * self.group_size]
            picked = torch.randperm(len(problem.known), generator=order)[: self.known].tolist()
            rollouts += [as_rollout(problem, number, problem.known[index]) for index in picked]
        return rollouts

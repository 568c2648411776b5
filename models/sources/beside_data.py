"""Sample from the policy, and lay answers of the data beside the samples of the same prompt.

For methods that learn from both at once (imitation beside reinforcement, self-play against the data). With
`greedy: true` the policy's likeliest completion stands in each group too: it is scored as a baseline and not taught.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import ClassVar, Literal

import torch

from models.bounds import Positive
from models.loop.rollout import Problem, Rollout
from models.loop.slots import World
from models.parts import part
from models.sources.dataset import as_rollout
from models.sources.sample import Sample, draw


@part("rollouts", "sample_beside_data")
class BesideData(Sample):
    """Samples and answers of the data. Stands under `rollouts:`."""

    reads: Literal["preferences", "demonstrations"] = "demonstrations"  # type: ignore[misc]
    """Which answers stand beside the samples."""
    known: Positive = 1
    """Answers of the data for each prompt, drawn anew each round where there are more."""

    @property
    def largest_group(self) -> int:
        """Samples and answers."""
        return self.group_size + self.known

    def __call__(self, world: World, problems: Sequence[Problem], round_number: int) -> list[Rollout]:
        """Samples, then answers of the data, prompt by prompt, [prompts * (G + known)]."""
        seed = world.seed * 1_000_003 + round_number
        sampled = draw(world, problems, self.sampling, seed)
        order = torch.Generator().manual_seed(seed)
        rollouts: list[Rollout] = []
        for number, problem in enumerate(problems):
            rollouts += sampled[number * self.group_size : (number + 1) * self.group_size]
            picked = torch.randperm(len(problem.known), generator=order)[: self.known].tolist()
            rollouts += [as_rollout(problem, number, problem.known[index]) for index in picked]
        return rollouts


@part("rollouts", "sample_and_greedy")
class SampleAndGreedy(Sample):
    """Samples and the policy's likeliest completion, which is scored as a baseline and not taught."""

    draws: ClassVar[bool] = True

    def __call__(self, world: World, problems: Sequence[Problem], round_number: int) -> list[Rollout]:
        """Samples, then the greedy completion, prompt by prompt, [prompts * (G + 1)]."""
        sampled = draw(world, problems, self.sampling, world.seed * 1_000_003 + round_number)
        likeliest = replace(self.sampling, temperature=0.0, samples=1)
        greedy = [
            replace(one, taught=(False,) * len(one.completion))
            for one in draw(world, problems, likeliest, 0, origin="greedy")
        ]
        size = self.group_size
        return [
            rollout
            for number, baseline in enumerate(greedy)
            for rollout in (*sampled[number * size : (number + 1) * size], baseline)
        ]

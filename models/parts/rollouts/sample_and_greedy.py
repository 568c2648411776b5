"""Sample from the policy, and add its likeliest completion of each prompt to the samples (ReMax; paper 384).

The greedy completion is scored as a baseline and not trained on: it depends on the prompt and the policy alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from models.base.seeds import round_seed, second_sampling_seed
from models.method.problem import Problem
from models.method.registry import part
from models.method.resources import RunResources
from models.method.rollout import Rollout
from models.parts.rollouts.sample import Sample, draw


@part("sample_and_greedy")
class SampleAndGreedy(Sample):
    """Samples and the policy's likeliest completion, which is not trained on. Set under `rollouts:`."""

    gives = ("greedy", "opponents")

    def largest_group(self, problems: Sequence[Problem] = ()) -> int:
        """Return the number of samples and the greedy completion."""
        return self.group_size + 1

    def __call__(self, resources: RunResources, problems: Sequence[Problem], round_number: int) -> list[Rollout]:
        """Return samples, then the greedy completion, prompt by prompt, [prompts * (G + 1)]."""
        seed = round_seed(resources.seed, round_number)
        sampled = draw(resources, problems, self.sampling, seed)
        likeliest = replace(self.sampling, temperature=0.0, samples=1)
        # the result is deterministic, but an engine seeds torch's generator, which others may draw from afterwards
        drawn = draw(resources, problems, likeliest, second_sampling_seed(seed), origin="greedy")
        greedy = [replace(rollout, trained=(False,) * len(rollout.completion)) for rollout in drawn]
        size = self.group_size
        return [
            rollout
            for number, baseline in enumerate(greedy)
            for rollout in (*sampled[number * size : (number + 1) * size], baseline)
        ]

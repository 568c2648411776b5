"""Samples, and branches that leave them at uncertain tokens (CURE, paper 228).

    y_i ~ pi(. | x)                                   originals
    t ~ uniform over the `critical` tokens of y_i at which the policy's entropy is highest, the first token left out
    y_ij ~ pi(. | x, y_i,<t)                          branches: token t and all after it are drawn again

Answers that all begin at the prompt become alike as the policy grows certain. A branch begins at a state that the
policy has reached and at which it is undecided, so it explores where the outcome is open. Originals and branches of a
prompt form one group, and both are trained on. A branch carries the loss on its own tokens alone: the common beginning
is part of its prompt, and its tokens are trained on once, in the original. The learner reads it once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from models.base.bounds import Positive
from models.base.seeds import choice_seed, round_seed, second_sampling_seed
from models.learner.packing import PerToken
from models.method.problem import Problem
from models.method.registry import part
from models.method.resources import RunResources
from models.method.rollout import Rollout, RolloutEpisode, RolloutSource
from models.parts.rollouts.prefix import continue_prefixes
from models.parts.rollouts.sample import Sample, draw


@part("branched")
class Branched(Sample):
    """Samples and branches of each. Set under `rollouts:`; `group_size` counts both."""

    reads_models = True
    group_size: Positive = 16
    """Completions per prompt (G): originals and branches together, a multiple of 1 + `branches`."""
    branches: Positive = 3
    """Branches of each original."""
    critical: Positive = 20
    """Number of tokens of highest entropy that a branch may begin at; more than a completion has: all of them."""

    @property
    def misfit(self) -> str:
        """Error message if the group cannot be divided into originals with their branches."""
        if self.group_size % (1 + self.branches) == 0:
            return ""
        return (
            f"rollouts.group_size is {self.group_size}, but each original has {self.branches} branches; set it to a "
            f"multiple of {1 + self.branches}"
        )

    def __call__(self, resources: RunResources, problems: Sequence[Problem], round_number: int) -> list[Rollout]:
        """Return the originals of each prompt, each followed by its branches, [prompts * G]."""
        seed = round_seed(resources.seed, round_number)
        count = self.group_size // (1 + self.branches)
        originals = draw(resources, problems, replace(self.sampling, samples=count), seed)
        begins = critical_places(resources.readings.entropy(originals), self.critical, choice_seed(seed))
        branches = self._branches(resources, originals, begins, second_sampling_seed(seed))
        return [
            rollout
            for number, original in enumerate(originals)
            for rollout in (original, *branches[number * self.branches : (number + 1) * self.branches])
        ]

    def _branches(
        self, resources: RunResources, originals: Sequence[Rollout], begins: Sequence[int], seed: int
    ) -> list[Rollout]:
        """Draw the branches of each original from its token `begins`, [originals * branches]."""
        problems = [original.problem for original in originals]
        prefixes = [original.completion[:begin] for original, begin in zip(originals, begins, strict=True)]
        sampling = replace(self.sampling, samples=self.branches)
        branches = continue_prefixes(resources, problems, prefixes, sampling, seed)
        owners = [original for original in originals for _ in range(self.branches)]
        return [
            replace(
                branch,
                group=owner.group,
                source=RolloutSource(begun=branch.source.begun),
                episode=RolloutEpisode(history=branch.source.begun),
            )
            for owner, branch in zip(owners, branches, strict=True)
        ]


def critical_places(entropies: PerToken, critical: int, seed: int) -> list[int]:
    """Draw a token of each completion uniformly from those of highest entropy after the first, [completions].

    Args:
        entropies: entropies of the policy at each token, [completions] tensors of [tokens of it], nats.
        critical: number of tokens that are drawn from.
        seed: seed of the draws; the same seed gives the same tokens.
    """
    generator = torch.Generator().manual_seed(seed)
    chances = torch.rand(len(entropies), dtype=torch.float64, generator=generator).tolist()
    return [_place(row.detach().cpu(), critical, chance) for row, chance in zip(entropies, chances, strict=True)]


def _place(entropy: Tensor, critical: int, chance: float) -> int:
    """Return the drawn place; 0, which makes the branch a plain sample, only for a completion of one token."""
    highest = 1 + entropy[1:].argsort(descending=True, stable=True)[:critical]
    return int(highest[int(chance * len(highest))]) if len(highest) else 0

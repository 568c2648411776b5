"""Fresh samples together with whole groups of completions of earlier rounds, as they were sampled then.

For objectives that learn from any sampling policy: trajectory balance (Flow of Reasoning, paper 304), tapered or
weighted policy gradients. The samples of a round are remembered with their log-probs at that time; their rewards are
computed again. The learner keeps the memory and writes it into its checkpoints, so that a resumed run replays the same
completions as an uninterrupted one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch

from models.base.bounds import Positive
from models.base.seeds import choice_seed, round_seed
from models.method.problem import Problem
from models.method.registry import part
from models.method.resources import RunResources
from models.method.rollout import Rollout
from models.parts.rollouts.sample import Sample, draw


@part("replay")
class Replay(Sample):
    """Fresh groups and replayed ones. Set under `rollouts:`."""

    off_policy = True
    rounds_kept: Positive = 4
    """Number of earlier rounds whose completions may be replayed."""
    replayed: Positive = 16
    """Groups of earlier rounds that are added to the fresh ones; fewer while the memory holds fewer."""

    def __call__(self, resources: RunResources, problems: Sequence[Problem], round_number: int) -> list[Rollout]:
        """Return fresh completions, then replayed ones, each group by itself, [(prompts + replayed) * G]."""
        seed = round_seed(resources.seed, round_number)
        fresh = draw(resources, problems, self.sampling, seed)
        memory = resources.learner.memory
        again = drawn_again(memory[-self.rounds_kept :], self.replayed, choice_seed(seed), first=len(problems))
        memory.append(fresh)
        del memory[: -self.rounds_kept]
        return fresh + again


def drawn_again(memory: Sequence[Sequence[Rollout]], count: int, seed: int, first: int) -> list[Rollout]:
    """Draw whole groups from `memory` at random, each at most once, numbered from `first`, [at most count * G].

    Args:
        memory: rollouts of earlier rounds, [rounds][completions].
        count: largest number of groups.
        seed: seed of the random choice.
        first: number of the first group.
    """
    groups: dict[tuple[int, int], list[Rollout]] = {}
    for age, rollouts in enumerate(memory):
        for rollout in rollouts:
            groups.setdefault((age, rollout.group), []).append(rollout)
    kept = list(groups.values())
    picked = torch.randperm(len(kept), generator=torch.Generator().manual_seed(seed))[:count].tolist()
    return [replace(rollout, group=first + number) for number, index in enumerate(picked) for rollout in kept[index]]

"""Success of an episode: one if it reached its goal, by the environment or else the answer verifier, otherwise zero.

The same rule decides in evaluations, so training and evaluation measure the same.
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


@part("solved")
class Solved(Reward):
    """One if the episode reached its goal, zero otherwise, also if the recipe's limits cut it."""

    def __call__(self, resources: RunResources, rollouts: Sequence[Rollout]) -> Tensor:
        """Return one or zero for each completion, [completions]."""
        return torch.tensor([float(reached_goal(rollout)) for rollout in rollouts])


def reached_goal(rollout: Rollout) -> bool:
    """Return whether an episode reached its goal, according to the environment, or else to the verifier."""
    return solves(rollout) if rollout.episode.solved is None else rollout.episode.solved and rollout.finished

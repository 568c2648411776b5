"""One where an episode reached its goal, zero elsewhere: the environment says so, or else the verifier of answers.

The same rule decides in evaluations, so what is trained on is what is measured.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from models.loop.rollout import Rollout
from models.loop.slots import Reward
from models.loop.world import World
from models.parts import part
from models.rewards.exact_answer import solves


@part("solved")
class Solved(Reward):
    """Whether the goal was reached; of an episode that was cut as the recipe says, never."""

    def __call__(self, world: World, rollouts: Sequence[Rollout]) -> Tensor:
        """One or zero for each completion, [completions]."""
        return torch.tensor([float(reached_goal(rollout)) for rollout in rollouts])


def reached_goal(rollout: Rollout) -> bool:
    """Whether an episode reached its goal, as the environment or else the verifier says."""
    return solves(rollout) if rollout.solved is None else rollout.solved and rollout.finished

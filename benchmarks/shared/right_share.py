"""A reward that only watches: the completions of a round that the recipe's verifier accepts as right.

A verifier that measures in part gives many completions a value between zero and one, so that its mean is not an
accuracy.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from models.method.attempt import Attempt, Verify
from models.method.resources import RunResources
from models.method.reward import Reward
from models.method.rollout import Rollout

RIGHT = "right"
"""Label of the reward in the metrics of a round."""


class RightShare(Reward):
    """One for a right completion, zero for any other; it adds nothing to the sum of rewards."""

    name = RIGHT
    weight = 0.0

    def __init__(self, verify: Verify) -> None:
        """Watch by the rule `verify`."""
        self._verify = verify
        self.__post_init__()

    def __call__(self, resources: RunResources, rollouts: Sequence[Rollout]) -> Tensor:
        """Judge the completions, [completions]."""
        return torch.tensor(list(map(float, self._verify([Attempt.of(each) for each in rollouts]))))

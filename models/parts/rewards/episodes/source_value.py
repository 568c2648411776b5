"""Value that the source of a completion gives it: the value of a turn in a search, or the change of a return."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from models.base.bounds import Number
from models.method.registry import part
from models.method.resources import RunResources
from models.method.reward import Reward
from models.method.rollout import Rollout


@part("source_value")
class SourceValue(Reward):
    """The value that came with the completion."""

    needs_extra = "values"
    unknown: Number = 0.0
    """Default value of a completion without one."""

    def __call__(self, resources: RunResources, rollouts: Sequence[Rollout]) -> Tensor:
        """Return values, [completions]."""
        return torch.tensor(
            [self.unknown if rollout.source.value is None else rollout.source.value for rollout in rollouts]
        )

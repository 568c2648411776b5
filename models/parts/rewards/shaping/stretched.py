"""Another reward, stretched within each group until different completions differ enough (ARMed, paper 212).

    k       = target / (max - min of the group), at least 1 and at most `most`
    value_i = mean + k (r_i - mean), between 0 and 1

A reward by similarity gives nearly the same value to completions that mean different things (arXiv 2508.12957). Next to
a rule for the whole answer, whose values are 0 and 1, it then hardly counts. A linear stretch alone has no effect on an
advantage that divides by the spread of the group. Groups with equal values, or a spread of `target` and more, are left
as they are. The metric `dispersion` is the mean of max - min over the groups before the stretch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor

from models.method.registry import part
from models.method.resources import RunResources
from models.method.reward import Blend, before
from models.method.rollout import Rollout
from models.parts.shared.group_statistics import group_mean, group_spread


@part("stretched")
class Stretched(Blend):
    """Another reward with at least a given spread within each group; it comes earlier in the recipe, with weight 0."""

    of: str = "similarity"
    """Label of the other reward, with values in [0, 1]."""
    target: Annotated[float, Field(gt=0.0, le=1.0)] = 0.5
    """Spread, max - min, that a group with different values is stretched to."""
    most: Annotated[float, Field(ge=1.0, le=1e6)] = 10.0
    """Largest factor of the stretch, so that rounding errors do not become rewards."""

    @property
    def made_of(self) -> tuple[str, ...]:
        """Label of the other reward."""
        return (self.of,)

    def blend(self, resources: RunResources, rollouts: Sequence[Rollout], components: Mapping[str, Tensor]) -> Tensor:
        """Return the stretched values, [completions], in [0, 1]."""
        values, groups = before(self.label, self.of, components).double(), _groups(rollouts)
        factor = (self.target / group_spread(values, groups)).clamp(1.0, self.most)
        mean = group_mean(values, groups)
        return (mean + factor * (values - mean)).clamp(0.0, 1.0).to(torch.float32)

    def watched(self, rollouts: Sequence[Rollout], components: Mapping[str, Tensor]) -> dict[str, float]:
        """Return the mean spread of the groups before the stretch."""
        groups = _groups(rollouts)
        spread = group_spread(before(self.label, self.of, components).double(), groups)
        sizes = torch.bincount(groups)[groups]
        return {"dispersion": float((spread / sizes).sum() / (1.0 / sizes).sum())}


def _groups(rollouts: Sequence[Rollout]) -> Tensor:
    return torch.tensor([rollout.group for rollout in rollouts])

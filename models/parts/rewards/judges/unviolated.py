"""Reward of completions that keep the constraints, by a mixture of judges (CGPO's CRPG; paper 187, arXiv 2409.20370).

    value = calibrated reward   if every judge's verdict reaches its minimum
            violated            otherwise

Judges are rewards of the recipe, rules or models, each of which defines its own violations. The calibrated reward is
the probability to beat a baseline answer, so that rewards of different prompts and tasks have one scale. A high reward
cannot compensate for a violation. Samples are split into those that keep the constraints and those that do not; if the
rewards are above `violated`, each of the first gets more than any of the second. Based on the abstract and the
catalogue's note; the form is derived.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field

import torch
from torch import Tensor

from models.base.bounds import Number
from models.method.registry import part
from models.method.resources import RunResources
from models.method.reward import Blend
from models.method.rollout import Rollout


@part("unviolated")
class Unviolated(Blend):
    """Another reward of the recipe, withheld from completions that violate a constraint."""

    of: str = ""
    """Label of the reward that is withheld; it comes earlier in the recipe, with weight 0."""
    judges: dict[str, Number] = field(default_factory=dict)
    """Label of each judge, an earlier reward with weight 0 -> minimum verdict without a violation."""
    violated: Number = 0.0
    """Reward of a completion that violates a constraint."""

    @property
    def made_of(self) -> tuple[str, ...]:
        """Labels of the reward and of its judges."""
        return (self.of, *self.judges) if self.of else ()

    def blend(self, resources: RunResources, rollouts: Sequence[Rollout], components: Mapping[str, Tensor]) -> Tensor:
        """Return values, [completions]."""
        kept = torch.ones(len(rollouts), dtype=torch.bool)
        for label, least in self.judges.items():
            kept &= components[label] >= least
        return torch.where(kept, components[self.of].float(), self.violated)

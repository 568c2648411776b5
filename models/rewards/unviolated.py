"""A reward for those who keep the constraints, after a mixture of judges (CGPO's CRPG; paper 187, arXiv 2409.20370).

    value = calibrated reward   where every judge's verdict reaches its least
            violated            where one does not

Judges are the rewards of the recipe, rules or models, each of which says by itself what is a violation; the calibrated
reward is the chance to beat a baseline answer, so that rewards of different prompts, and of different tasks, have one
scale. A policy cannot pay for a violation with reward: no score, however high, makes up for one. Samples are parted
into those that keep the constraints and those that do not, and where the reward lies above `violated` every one of the
first is worth more than any of the second. The abstract and the catalogue's note were read; the form is derived.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field

import torch
from torch import Tensor

from models.bounds import Number
from models.loop.reward_forms import Blend
from models.loop.rollout import Rollout
from models.loop.world import World
from models.parts import part


@part("unviolated")
class Unviolated(Blend):
    """Another reward, withheld from completions that violate a constraint; it and the judges stand before, weight 0."""

    of: str = ""
    """Label of the reward that is withheld."""
    judges: dict[str, Number] = field(default_factory=dict)
    """Label of each judge -> its least verdict that is no violation."""
    violated: Number = 0.0
    """What a completion is worth that violates a constraint."""

    @property
    def made_of(self) -> tuple[str, ...]:
        """The reward and its judges."""
        return (self.of, *self.judges) if self.of else ()

    def blend(self, world: World, rollouts: Sequence[Rollout], components: Mapping[str, Tensor]) -> Tensor:
        """Values, [completions]."""
        kept = torch.ones(len(rollouts), dtype=torch.bool)
        for label, least in self.judges.items():
            kept &= components[label] >= least
        return torch.where(kept, components[self.of].float(), self.violated)

"""The parts of a recipe together: what the loop is made of."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from models.loop.slots import Advantage, Objective, Reference, Reward, Rollouts, Select


@dataclass(frozen=True)
class Slots:
    """The parts of a recipe, one for each slot, or several."""

    rollouts: Rollouts
    rewards: Sequence[Reward]
    select: Sequence[Select]
    advantage: Advantage
    objective: Objective
    reference: Reference

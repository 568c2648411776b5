"""A stack of rewards: the weighted sum teaches, every component is kept apart for the eye."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from models.errors import UserError
from models.loop.rollout import Rollout, Scored
from models.loop.slots import Reward, World


def score(world: World, rewards: Sequence[Reward], rollouts: Sequence[Rollout]) -> Scored:
    """Apply every reward to `rollouts` and add them by weight.

    Raises:
        UserError: a reward gives a value that is not finite, or not one for each completion.
    """
    components = {reward.label: reward(world, rollouts) for reward in rewards}
    total = torch.zeros(len(rollouts))
    for reward in rewards:
        values = components[reward.label]
        if values.shape != total.shape:
            raise UserError(f"reward {reward.label}: gave {tuple(values.shape)} values for {len(rollouts)} completions")
        if not torch.isfinite(values).all():
            bad = int((~torch.isfinite(values)).nonzero()[0])
            raise UserError(f"reward {reward.label}: not finite for problem {rollouts[bad].problem.id}")
        total += reward.weight * values
    return Scored(rollouts, total, components)

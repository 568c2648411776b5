"""Score a round: the policy is trained on the weighted sum of the rewards; every component is kept for the eye."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from models.errors import UserError
from models.loop.rollout import Rollout, Scored
from models.loop.slots import Reward, TokenReward, sum_of_tokens
from models.loop.world import World


def score(world: World, rewards: Sequence[Reward], rollouts: Sequence[Rollout]) -> Scored:
    """Apply every reward to `rollouts` in the order of the recipe and add them by weight.

    Raises:
        UserError: a reward gives a value that is not finite, or not one for each completion or each of its tokens.
    """
    components: dict[str, Tensor] = {}
    watched: dict[str, float] = {}
    total = torch.zeros(len(rollouts))
    by_token: list[Tensor] | None = None
    lengths = [len(rollout.completion) for rollout in rollouts]
    for reward in rewards:
        if reward.companion:
            learned = reward.learn(world, rollouts, components)
            watched |= {f"{reward.companion}/{name}": value for name, value in learned.items()}
        if isinstance(reward, TokenReward):
            given = reward.tokens(world, rollouts)
            if [len(row) for row in given] != lengths:
                raise UserError(f"reward {reward.label}: did not give one value for each token of each completion")
            values = sum_of_tokens(given)
            more = [reward.weight * row.float() for row in given]
            by_token = more if by_token is None else [one + other for one, other in zip(by_token, more, strict=True)]
        else:
            values = reward(world, rollouts)
        if values.shape != total.shape:
            raise UserError(f"reward {reward.label}: gave {tuple(values.shape)} values for {len(rollouts)} completions")
        if not torch.isfinite(values).all():
            bad = int((~torch.isfinite(values)).nonzero()[0])
            raise UserError(f"reward {reward.label}: not finite for problem {rollouts[bad].problem.id}")
        components[reward.label] = values
        total += reward.weight * values
    return Scored(rollouts, total, components, watched, by_token)

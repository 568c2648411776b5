"""The KL to the reference as a part of the reward, before any baseline: shared by advantages over groups.

    r_i <- r_i - kl * sum over t of log( pi_old(y_t) / reference(y_t) )

The plain estimator of KL(pi || reference), k1 in Schulman (2020), over a whole completion. As a part of the reward its
gradient is that of the KL itself, grad E[r - kl * log pi/ref], and the group's baseline takes its noise away, as "Back
to Basics" does before it leaves one out (RLOO, arXiv 2402.14740). The term k3 in the loss is another thing: its
gradient is taken through the log-probs of the samples alone, and is not that of the KL that it estimates.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor

from models.critic.fit import trained_mask
from models.errors import UserError
from models.loop.rollout import Rollout, Scored
from models.loop.slots import Advantage
from models.loop.world import World


def log_ratios(world: World, rollouts: Sequence[Rollout], weight: float) -> list[Tensor]:
    """log pi_old / reference of each token, [completions] tensors of [tokens of it], nats, on the CPU.

    Raises:
        UserError: the recipe has no reference; the line names `advantage.kl_in_reward`, which is `weight`.
    """
    reference = world.readings.reference(rollouts)
    if reference is None:
        raise UserError(f"advantage.kl_in_reward is {weight}, but there is no reference to hold the policy against")
    policy = world.readings.policy(rollouts)
    return [mine.cpu() - other.cpu() for mine, other in zip(policy, reference, strict=True)]


@dataclass(frozen=True, kw_only=True)
class KlInReward(Advantage):
    """Setting of advantages that can take the KL off the reward. Stands under `advantage:`."""

    kl_in_reward: Annotated[float, Field(ge=0)] = 0.0
    """Reward that a completion loses for each nat of log pi/ref, before the baseline; needs a reference."""

    @property
    def learns_from_flat_groups(self) -> bool:
        """With the penalty completions of equal reward differ."""
        return self.kl_in_reward > 0

    def _penalised(self, world: World, scored: Scored) -> Scored:
        """`scored` with the penalty taken off the rewards of what the policy has sampled.

        Answers of the data, opponents and greedy baselines keep theirs: they are no samples that the mean over the
        policy would be estimated from. Of a completion that others have begun only the policy's own tokens count.

        Raises:
            UserError: a penalty is wanted, but the recipe has no reference.
        """
        own = [index for index, rollout in enumerate(scored.rollouts) if rollout.origin in ("policy", "guide")]
        if not self.kl_in_reward or not own:
            return scored
        rollouts = [scored.rollouts[index] for index in own]
        rows = log_ratios(world, rollouts, self.kl_in_reward)
        ratios = [row[trained_mask(rollout)].sum() for rollout, row in zip(rollouts, rows, strict=True)]
        rewards = scored.rewards.clone()
        rewards[torch.tensor(own)] -= self.kl_in_reward * torch.stack(ratios).to(rewards)
        return replace(scored, rewards=rewards)

"""The KL to the reference as a part of the reward, before any baseline: shared by advantages over groups.

    r_i <- r_i - kl * sum over t of k( log pi_old(y_t) / reference(y_t) )
    k1(d) = d,   k2(d) = d^2 / 2,   k3(d) = exp(-d) - 1 + d        the estimators of Schulman (2020)

k1 over a whole completion is the plain estimator of KL(pi || reference). As a part of the reward its gradient is that
of the KL itself, grad E[r - kl * log pi/ref], and the group's baseline reduces its variance, as "Back to Basics" does
with its leave-one-out baseline (RLOO, arXiv 2402.14740). The others have a lower variance, but a reward's gradient is
taken only through the choice of the samples, so that the expected gradient of theirs is

    k3    grad KL(pi || reference) - grad KL(reference || pi), which near the reference is next to nothing
    k2    the mean of d^2 / 2 * grad log pi, of second order there as well

so neither holds a policy that is near its reference: "A Comedy of Estimators" (arXiv 2512.21852) saw runs with k3 in
the reward become unstable. They are here for comparison. The term k3 in the loss is a different method
(`models.parts.shared.kl_term`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import torch
from pydantic import NonNegativeFloat
from torch import Tensor

from models.base.errors import UserError
from models.method.advantage import Advantage
from models.method.resources import RunResources
from models.method.rollout import Rollout
from models.method.scored import Scored
from models.reward_models.critic.fit import trained_mask

ESTIMATORS: dict[str, Callable[[Tensor], Tensor]] = {
    "k1": lambda log_ratio: log_ratio,
    "k2": lambda log_ratio: 0.5 * log_ratio**2,
    "k3": lambda log_ratio: torch.exp(-log_ratio) - 1.0 + log_ratio,
}
"""KL(policy || reference) estimated at each sampled token from log pi/ref, any shape, nats."""


def log_ratios(resources: RunResources, rollouts: Sequence[Rollout], weight: float) -> list[Tensor]:
    """Compute log pi_old / reference of each token, [completions] tensors of [tokens of it], nats, on the CPU.

    Raises:
        UserError: the recipe has no reference; the line names `advantage.kl_in_reward`, which is `weight`.
    """
    reference = resources.readings.reference(rollouts)
    if reference is None:
        raise UserError(
            f"advantage.kl_in_reward is {weight}, but the recipe has no reference to compare the policy with"
        )
    policy = resources.readings.policy(rollouts)
    return [mine.cpu() - other.cpu() for mine, other in zip(policy, reference, strict=True)]


@dataclass(frozen=True, kw_only=True)
class KlInReward(Advantage):
    """Setting of advantages that can subtract the KL from the reward. Set under `advantage:`."""

    kl_in_reward: NonNegativeFloat = 0.0
    """Reward that a completion loses for each nat of its KL, log pi/ref, before the baseline; needs a reference."""

    kl_in_reward_estimator: Literal["k1", "k2", "k3"] = "k1"
    """Estimator of the KL of a token. Only k1 has the gradient of KL(policy || reference); the others vanish near the
    reference."""

    @property
    def learns_from_flat_groups(self) -> bool:
        """Whether the penalty is on, by which completions of equal reward differ."""
        return self.kl_in_reward > 0

    def _token_kls(self, resources: RunResources, scored: Scored) -> tuple[list[int], list[Tensor]]:
        """Return the completions that pay for their KL, and the estimate at each of their tokens.

        Returns:
            Indices, [sampled]; none where nothing is taken off.
            [sampled] tensors of [tokens of it], nats, on the CPU.

        Raises:
            UserError: the recipe has no reference.
        """
        own = scored.sampled if self.kl_in_reward else []
        if not own:
            return [], []
        estimate = ESTIMATORS[self.kl_in_reward_estimator]
        rows = log_ratios(resources, [scored.rollouts[index] for index in own], self.kl_in_reward)
        return own, [estimate(row) for row in rows]

    def _penalised(self, resources: RunResources, scored: Scored) -> Scored:
        """Return `scored` with the penalty subtracted from the rewards of the policy's samples.

        Answers of the data, opponents and greedy baselines keep theirs: they are not samples from which the mean over
        the policy could be estimated. In a completion that others have begun only the policy's own tokens count.

        Raises:
            UserError: a penalty is set, but the recipe has no reference.
        """
        own, kls = self._token_kls(resources, scored)
        if not own:
            return scored
        sums = [row[trained_mask(scored.rollouts[index])].sum() for index, row in zip(own, kls, strict=True)]
        rewards = scored.rewards.clone()
        rewards[torch.tensor(own)] -= self.kl_in_reward * torch.stack(sums).to(rewards)
        return replace(scored, rewards=rewards)

"""Generalised advantage estimation with a learned critic (Schulman et al. 2015, arXiv 1506.02438), as in PPO.

    delta_t = r_t + gamma * V_{t+1} - V_t            V after the last token is zero, cut completions included
    A_t     = delta_t + gamma * gae_lambda * A_{t+1}
    R_t     = A_t + V_t                              the critic's target

With `kl` the reward of each token holds a penalty against the reference, r_t - kl * log(pi_old / reference), as in
"Learning to summarize from human feedback" (arXiv 2009.01325). The other settings are the stabilisers of PPO-max
(Secrets of RLHF I, arXiv 2307.04964; paper 178): the reward of each completion is normalised over the round's batch and
clipped, advantages are whitened, the critic learns alone at first, and the change of its values per round is limited.
The paper keeps running statistics of the reward; here they are those of the batch, so a resumed run needs no such
state. In an episode t counts the tokens that the policy wrote: the environment's text between them takes no time.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import ClassVar, Literal

import torch
from pydantic import NonNegativeFloat, PositiveFloat
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from models.base.bounds import Share
from models.learner.packing import PerToken
from models.method.advantage import Signal
from models.method.registry import part
from models.method.resources import RunResources
from models.method.scored import Scored
from models.parts.shared.critic_advantage import CriticAdvantage, ValuedSignal
from models.parts.shared.kl_in_reward import log_ratios
from models.parts.shared.token_advantages import EPSILON, whitened
from models.parts.shared.written_tokens import spread_rows, written_rows
from models.reward_models.critic.fit import trained_mask


def generalised_advantages(rewards: PerToken, values: PerToken, gamma: float, gae_lambda: float) -> list[Tensor]:
    """Compute A_t of every token, [completions] tensors of [tokens of it], in the precision of the values.

    Args:
        rewards: reward of each token, [completions] tensors of [tokens of it].
        values: expected return before each token, likewise.
        gamma: discount per token.
        gae_lambda: 0 trusts the critic after one token, 1 trusts the rewards to the end.
    """
    # A padded position has neither reward nor value, so it adds nothing to the positions before it.
    value = pad_sequence(list(values), batch_first=True)
    reward = pad_sequence([row.to(value) for row in rewards], batch_first=True)
    following = torch.cat([value[:, 1:], torch.zeros_like(value[:, :1])], dim=1)
    surprise = reward + gamma * following - value
    advantage = torch.zeros_like(surprise)
    later = torch.zeros_like(surprise[:, 0])
    for time in reversed(range(surprise.shape[1])):
        later = surprise[:, time] + gamma * gae_lambda * later
        advantage[:, time] = later
    return [row[: len(given)] for row, given in zip(advantage, values, strict=True)]


def stabilised(scored: Scored, scale: Literal["none", "batch"], clip: float | None) -> Scored:
    """Normalise and clip the rewards of completions; rewards by token are divided by the same deviation.

    Args:
        scored: a round's completions.
        scale: batch: less the mean over the completions and divided by their deviation.
        clip: largest absolute reward of a completion afterwards; None: no limit.
    """
    rewards, tokens = scored.rewards, scored.token_rewards
    if scale == "batch":
        deviation = rewards.std(unbiased=False) + EPSILON
        rewards = (rewards - rewards.mean()) / deviation
        tokens = None if tokens is None else [row / deviation for row in tokens]
    if clip is not None:
        rewards = rewards.clamp(-clip, clip)
    return replace(scored, rewards=rewards, token_rewards=tokens)


@part("gae")
class Gae(CriticAdvantage):
    """Rewards and the critic's values, weighted along each completion."""

    renamed: ClassVar[Mapping[str, str]] = {"trace": "gae_lambda", "kl": "kl_in_reward"}
    gae_lambda: Share = 0.95
    """Lambda: 0 is the one-step error of the critic, 1 the return less its value."""
    gamma: Share = 1.0
    """Discount of a reward per token."""
    whiten: bool = True
    """Whether the advantages of a round are normalised to mean zero and deviation one over all tokens."""
    reward_scale: Literal["none", "batch"] = "none"
    """batch: normalise the completions' rewards over the round before anything else."""
    reward_clip: PositiveFloat | None = None
    """Largest absolute reward of a completion, after normalising; None: no limit."""
    kl_in_reward: NonNegativeFloat = 0.0
    """Weight of the penalty for leaving the reference, in the reward of each token, in units of reward per nat."""

    def __call__(self, resources: RunResources, scored: Scored) -> ValuedSignal:
        """Compute advantages, returns and values by token; advantages are zero while only the critic learns.

        Raises:
            UserError: a KL penalty is wanted, but the recipe has no reference.
        """
        values, rollouts = self._values(resources, scored), scored.rollouts
        expected = written_rows(values, rollouts)
        earned = written_rows(self._token_rewards(resources, scored), rollouts)
        tokens = generalised_advantages(earned, expected, self.gamma, self.gae_lambda)
        returns = [advantage + value for advantage, value in zip(tokens, expected, strict=True)]
        tokens, returns = spread_rows(tokens, rollouts), spread_rows(returns, rollouts)
        if self._alone(resources):
            tokens = [torch.zeros_like(row) for row in tokens]
        elif self.whiten:
            tokens = whitened(tokens, [trained_mask(rollout) for rollout in rollouts])
        return ValuedSignal(tokens, returns, values)

    def _token_rewards(self, resources: RunResources, scored: Scored) -> list[Tensor]:
        """Compute rewards after the stabilisers and with the penalty, [completions] tensors of [tokens of it]."""
        placed = stabilised(scored, self.reward_scale, self.reward_clip).rewards_by_token()
        if not self.kl_in_reward:
            return placed
        ratios = log_ratios(resources, scored.rollouts, self.kl_in_reward)
        return [row - self.kl_in_reward * ratio.to(row) for row, ratio in zip(placed, ratios, strict=True)]

    def learn(self, resources: RunResources, scored: Scored, signal: Signal, round_number: int) -> dict[str, float]:
        """Fit the critic to the round's returns. Returns metrics of the fit."""
        return self._fit(resources, scored, signal)

"""Win rate among the completions of a prompt: a reward that needs only comparisons (SPO, arXiv 2401.04056; paper 199).

    r_i = mean over the adversaries j of i of P(i beats j)

Preferences need not come from a scalar value: they may be cyclic. A policy that is rewarded with its win rate against
its own samples plays a symmetric zero-sum game with itself, whose solution is the minimax winner ("A Minimaximalist
Approach to Reinforcement Learning from Human Feedback"). With one adversary drawn from a policy that is regularised
towards the reference, it is the reward of Nash-MD ("Nash Learning from Human Feedback", arXiv 2312.00886; paper 49).

Since P(i beats j) + P(j beats i) = 1, the win rates of any group have the mean 1/2. Subtracting the mean is subtracting
a constant, so the policy gradient is exactly that of the expected win rate.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar, Literal

import torch
from torch import Tensor

from models.answers.exact import solves
from models.base.errors import UserError
from models.method.registry import part
from models.method.resources import RunResources
from models.method.reward import Reward
from models.method.rollout import Extra, Rollout
from models.parts.rewards.models.learned import learned_scores


def preferences_by_rank(worth: Tensor) -> Tensor:
    """Compute P(i beats j) by order alone: 1 for the larger value, 1/2 for equal ones, [n] -> [n, n]."""
    return (torch.sign(worth[:, None] - worth[None, :]) + 1.0) / 2.0


def preferences_by_log_odds(scores: Tensor) -> Tensor:
    """Compute P(i beats j) by the Bradley-Terry model: the sigmoid of the difference of scores, [n] -> [n, n]."""
    return torch.sigmoid(scores[:, None] - scores[None, :])


def win_rates(preferences: Tensor, adversaries: Tensor) -> Tensor:
    """Compute each completion's mean preference over its adversaries, [completions]; 1/2 without adversaries.

    Args:
        preferences: P(row beats column), [completions, completions], in [0, 1].
        adversaries: whether the row is compared with the column, [completions, completions], bool.
    """
    count = adversaries.sum(-1)
    won = torch.where(adversaries, preferences, 0.0).sum(-1)
    return torch.where(count > 0, won / count.clamp(min=1), 0.5)


@part("win_rate")
class WinRate(Reward):
    """Share of comparisons won. Several of them, with weights that add up to 1, are the preference of a jury; two with
    different `judge` in one recipe need two labels."""

    renamed: ClassVar[Mapping[str, str]] = {"by": "judge"}
    judge: Literal["exact_answer", "reward_model"] = "exact_answer"
    """Judge of the comparisons: the verifier (1 for right against wrong, 1/2 between equals), or the reward model (the
    sigmoid of the difference of scores)."""
    against: Literal["group", "opponents"] = "group"
    """group: all other completions of the prompt; opponents: completions drawn only for comparison, which the policy
    does not learn from. Opponents themselves are compared with the completions that it learns from."""

    @property
    def needs_reward_model(self) -> bool:
        """Whether the reward model compares."""
        return self.judge == "reward_model"

    @property
    def needs_answers(self) -> bool:
        """Whether the verifier compares."""
        return self.judge == "exact_answer"

    @property
    def needs_extra(self) -> Extra | None:
        """Opponents, if they are the only adversaries."""
        return "opponents" if self.against == "opponents" else None

    def __call__(self, resources: RunResources, rollouts: Sequence[Rollout]) -> Tensor:
        """Return the win rate of each completion within its group, [completions], in [0, 1].

        Raises:
            UserError: a prompt has no opponents, and `against` asks for them.
        """
        worth = self._worth(resources, rollouts)
        members: dict[int, list[int]] = {}
        for index, rollout in enumerate(rollouts):
            members.setdefault(rollout.group, []).append(index)
        rates = torch.full_like(worth, 0.5)
        for held in members.values():
            preferences = (preferences_by_rank if self.judge == "exact_answer" else preferences_by_log_odds)(
                worth[held]
            )
            rates[held] = win_rates(preferences, self._adversaries([rollouts[index] for index in held]))
        return rates

    def _worth(self, resources: RunResources, rollouts: Sequence[Rollout]) -> Tensor:
        """Return the value by which each completion is compared, [completions]."""
        if self.judge == "exact_answer":
            return torch.tensor([float(solves(rollout)) for rollout in rollouts])
        return learned_scores(resources, rollouts)

    def _adversaries(self, group: Sequence[Rollout]) -> Tensor:
        """Return whether row and column of a group are compared, [completions, completions], bool."""
        if self.against == "group":
            return ~torch.eye(len(group), dtype=torch.bool)
        opponent = torch.tensor([rollout.trained_tokens == 0 for rollout in group])
        if not opponent.any():
            raise UserError(
                f"rewards {self.label}: against: opponents needs a source that draws opponents, such as "
                "rollouts.name: sample_beside_mixture"
            )
        return opponent[:, None] != opponent[None, :]

"""Rollouts with their rewards."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from models.base.errors import UserError
from models.learner.packing import PerToken, Sequences
from models.method.rollout import Rollout, groups_of, sampled_places, sequences_of


@dataclass(frozen=True)
class Scored:
    """Rollouts with the reward of each."""

    rollouts: Sequence[Rollout]
    rewards: Tensor
    """Weighted sum of the components, [completions], float32."""
    components: Mapping[str, Tensor]
    """Label -> reward component before weighting, [completions]; one with a value per token is summed."""
    watched: Mapping[str, float]
    """Metrics of the rewards and of their companions, and the number of failed calls of each reward."""
    token_rewards: PerToken | None = None
    """Weighted sum of the components with a value per token, [completions] tensors of [tokens of it]. It is included in
    `rewards`. None if there are none."""
    reasons: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """Label of a reward that gives reasons -> reason for each completion, [completions]."""

    @property
    def groups(self) -> Tensor:
        """Group of each completion, renumbered from 0 in order of appearance, [completions]."""
        return groups_of(self.rollouts)

    @property
    def lengths(self) -> Tensor:
        """Number of tokens of each completion, [completions]."""
        return torch.tensor([len(rollout.completion) for rollout in self.rollouts], dtype=torch.long)

    @property
    def trained(self) -> Tensor:
        """Indices of the completions that the policy learns from, [kept]."""
        return torch.tensor([i for i, rollout in enumerate(self.rollouts) if rollout.trained_tokens], dtype=torch.long)

    @property
    def sampled(self) -> list[int]:
        """Indices of the completions that the policy has sampled (`sampled_places`)."""
        return sampled_places(self.rollouts)

    @property
    def sequences(self) -> Sequences:
        """Prompts and completions as the learner reads them, [sequences] as in `parts_of`."""
        return sequences_of(self.rollouts)

    def take(self, indices: Tensor) -> Scored:
        """Return the completions at `indices`, in that order."""
        rows = self.token_rewards
        return replace(
            self,
            rollouts=[self.rollouts[index] for index in indices.tolist()],
            rewards=self.rewards[indices],
            components={name: values[indices] for name, values in self.components.items()},
            token_rewards=None if rows is None else [rows[index] for index in indices.tolist()],
            reasons={name: [texts[index] for index in indices.tolist()] for name, texts in self.reasons.items()},
        )

    def component(self, by: str, setting: str = "select.by") -> Tensor:
        """Return the reward named `by`, [completions]: the weighted sum if `by` is total, else that component.

        Raises:
            UserError: no reward is called `by`; the message names `setting`, the key of the recipe that holds the name.
        """
        return reward_called(by, self.rewards, self.components, setting)

    def rewards_by_token(self) -> list[Tensor]:
        """Return the reward at each token, [completions] tensors of [tokens of it].

        The reward of a whole completion is placed at the last token that the policy wrote.
        """
        placed = []
        for index, rollout in enumerate(self.rollouts):
            values = torch.zeros(len(rollout.completion), dtype=self.rewards.dtype)
            if self.token_rewards is not None:
                values = values + self.token_rewards[index].to(values)
            turns = rollout.episode.turns
            values[turns[-1].stop - 1 if turns else -1] += self.rewards[index] - values.sum()
            placed.append(values)
        return placed


def reward_called(by: str, total: Tensor, components: Mapping[str, Tensor], setting: str) -> Tensor:
    """Return the reward named `by`, [completions]: the weighted sum if `by` is total, else that component.

    Args:
        by: name of a component, or `total`.
        total: weighted sum of the components, [completions].
        components: rewards by label, [completions] each.
        setting: key of the recipe that holds the name, for the error message.

    Raises:
        UserError: no reward is called `by`.
    """
    if by == "total":
        return total
    if by not in components:
        raise UserError(f"{setting}: no reward is called {by}; there are {', '.join(components)}")
    return components[by]


def sum_of_tokens(rows: PerToken) -> Tensor:
    """Sum the token rewards of each completion, [completions] tensors of [tokens of it] -> [completions]."""
    return torch.stack([row.sum() for row in rows]) if len(rows) else torch.zeros(0)

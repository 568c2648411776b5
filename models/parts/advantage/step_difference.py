"""The advantage of a reasoning step is its gain in expected reward (paper 75, arXiv 2412.18279).

Source: Direct Advantage Policy Optimization, not the decoupled-clip method with the same short name (DAPO).

    A_k = V(prompt, steps 1 .. k) - V(prompt, steps 1 .. k-1)       after the last step the reward replaces V

A critic estimates V at the boundaries of steps, and is trained only there: each completion that continued from a
boundary is one Monte-Carlo sample of the reward that follows it. A step is deterministic given the policy's choice, so
with no discount the difference is the advantage of that choice; over a completion the advantages add up to R -
V(prompt). The paper fits its critic beforehand, by cross-entropy on the success rate of many continuations. Here the
critic learns alone at first (`critic.pretraining`) and then together with the policy, on the one continuation of each
completion; the squared error has the same minimiser. Every token carries the advantage of its whole step.
"""

from __future__ import annotations

import torch
from torch import Tensor

from models.method.advantage import Signal
from models.method.registry import part
from models.method.resources import RunResources
from models.method.scored import Scored
from models.method.steps import MARKS, pieces_of, step_numbers, step_starts
from models.parts.shared.critic_advantage import CriticAdvantage, ValuedSignal
from models.parts.shared.written_tokens import spread_rows, written_rows
from models.reward_models.critic.fit import trained_mask


def step_advantages(reward: Tensor, values: Tensor, starts: Tensor) -> Tensor:
    """Compute the gain in expected reward of each token's step, [tokens].

    Args:
        reward: reward of the whole completion, a scalar.
        values: expected reward before each token, [tokens].
        starts: mask of the tokens that begin a step, [tokens], bool.
    """
    boundaries = torch.cat([values[starts], reward.to(values).view(1)])
    return boundaries.diff()[step_numbers(starts)]


@part("step_difference")
class StepDifference(CriticAdvantage):
    """Differences of a critic's values from one step to the next."""

    marks: tuple[str, ...] = MARKS
    """Texts that end a step: a token whose text holds one of them is the last of its step."""

    def __call__(self, resources: RunResources, scored: Scored) -> ValuedSignal:
        """Compute advantages token by token, equal within a step; zeros while the critic learns alone."""
        values, rollouts = self._values(resources, scored), scored.rollouts
        begun = written_rows(self._starts(resources, scored), rollouts)
        tokens = [
            step_advantages(reward, row, starts)
            for reward, row, starts in zip(scored.rewards, written_rows(values, rollouts), begun, strict=True)
        ]
        tokens = spread_rows(tokens, rollouts)
        if self._alone(resources):
            tokens = [torch.zeros_like(row) for row in tokens]
        returns = [reward.to(row).expand_as(row) for reward, row in zip(scored.rewards, values, strict=True)]
        return ValuedSignal(tokens, returns, values)

    def learn(self, resources: RunResources, scored: Scored, signal: Signal, round_number: int) -> dict[str, float]:
        """Fit the critic to the reward at the beginning of each step. Returns metrics of the fit."""
        counted = [
            starts & trained_mask(rollout)
            for starts, rollout in zip(self._starts(resources, scored), scored.rollouts, strict=True)
        ]
        fitted = self._fit(resources, scored, signal, counted)
        steps = sum(int(mask.sum()) for mask in counted)
        return {**fitted, "steps": steps / max(1, len(counted))}

    def _starts(self, resources: RunResources, scored: Scored) -> list[Tensor]:
        """Mark the tokens that begin a step, the first tokens of turns included.

        The result is [completions] tensors of [tokens of it], bool.
        """
        pieces = pieces_of(resources.codec, [rollout.completion for rollout in scored.rollouts])
        starts = [step_starts(row, self.marks) for row in pieces]
        for row, rollout in zip(starts, scored.rollouts, strict=True):
            row[[turn.start for turn in rollout.episode.turns]] = True
        return starts

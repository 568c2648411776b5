"""Partial credit for a call: format, name of the tool, names of parameters, values (ToolRL, paper 208, 2504.13958).

    value = w_format F + 2 scale (S - 1/2) where readable;   S = sum over the parts of w M / sum of w

F is 1 if the call can be read, M is the share of each part that is as expected (`models.agents.play.named_calls`): the
name, the names of parameters (shared over all), the values. S is in [0, 1], so correctness is in [-scale, scale] as in
the paper, whose scale is 3; a call that cannot be read gets -scale. The paper's schedules of scale and granularity are
set by `begins`: the initial weights, which are interpolated linearly to those of the recipe over `over` updates of the
policy.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from pydantic import NonNegativeFloat
from torch import Tensor

from models.agents.play.named_calls import Expected, match
from models.answers.hidden import hidden_of_each
from models.base.bounds import Count
from models.method.registry import part
from models.method.resources import RunResources
from models.method.reward import Reward
from models.method.rollout import Rollout


@dataclass(frozen=True, kw_only=True)
class CallWeights:
    """Weights of the parts of a call."""

    format: NonNegativeFloat = 1.0
    """Weight of the format: a call that can be read."""
    scale: NonNegativeFloat = 3.0
    """Largest reward of correctness, and its largest cost."""
    name: NonNegativeFloat = 1.0
    """Weight of the tool's name within correctness."""
    parameters: NonNegativeFloat = 1.0
    """Weight of the parameters' names within correctness."""
    values: NonNegativeFloat = 1.0
    """Weight of the values within correctness."""

    def towards(self, other: CallWeights, share: float) -> CallWeights:
        """Interpolate linearly to `other`; `share` 0 gives these weights, 1 the others."""
        ways = {name: (1 - share) * value + share * vars(other)[name] for name, value in vars(self).items()}
        return CallWeights(**ways)

    def worth(self, turn: str, expected: Expected) -> float:
        """Return the reward of one call."""
        parts = match(turn, expected)
        if not parts.format:
            return -self.scale
        whole = self.name + self.parameters + self.values
        met = self.name * parts.name + self.parameters * parts.parameters + self.values * parts.values
        return self.format + self.scale * (2.0 * met / whole - 1.0) if whole else self.format


@part("call_match")
class CallMatch(Reward):
    """Partial credit for a call: readable, right tool, right parameters, right values. The last turn counts."""

    needs_answers = True
    parts: CallWeights = CallWeights()
    """Weight of each part."""
    begins: CallWeights | None = None
    """Initial weights; null: the same as `parts`."""
    over: Count = 0
    """Updates of the policy until `parts` is reached."""

    def __call__(self, resources: RunResources, rollouts: Sequence[Rollout]) -> Tensor:
        """Return values in [-scale, format + scale], [completions]; NaN if the problem's calls cannot be read."""
        weights = self._at(resources.learner.updates)
        expected = hidden_of_each([rollout.problem for rollout in rollouts], Expected, "calls")
        return torch.tensor(
            [
                torch.nan if calls is None else weights.worth(_last_turn(rollout), calls)
                for rollout, calls in zip(rollouts, expected, strict=True)
            ]
        )

    def _at(self, updates: int) -> CallWeights:
        if self.begins is None or updates >= self.over:
            return self.parts
        return self.begins.towards(self.parts, updates / self.over)


def _last_turn(rollout: Rollout) -> str:
    if not rollout.finished:
        return ""
    return rollout.episode.turns[-1].text if rollout.episode.turns else rollout.text

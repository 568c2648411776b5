"""Verifier reward scaled by length: shorter is better for right answers, worse for wrong ones (paper 92, 2502.03373).

    value = long + (short - long) (1 + cos(pi length / longest)) / 2      short, long: of right or of wrong answers
    value = cut                                                           if it did not end

Half a cosine is flat at both ends: very short and nearly too long completions are not pushed further. Long wrong
answers cost less, so a policy that cannot solve a problem yet learns to think longer. A policy that solves it learns to
think no longer than needed. The length therefore converges, while it drifts under a plain verdict.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from models.answers.exact import solves
from models.base.bounds import Number, Positive
from models.method.registry import part
from models.method.resources import RunResources
from models.method.reward import Reward
from models.method.rollout import Rollout


def half_cosine(length: int, longest: int, short: float, long: float) -> float:
    """Interpolate from `short` at length 0 to `long` at `longest` and beyond, along half a cosine."""
    return long + (short - long) * (1.0 + math.cos(math.pi * min(1.0, length / longest))) / 2.0


@part("cosine_length")
class CosineLength(Reward):
    """The verifier's verdict, scaled by the number of tokens that the policy wrote. Replaces `exact_answer`."""

    needs_answers = True
    longest: Positive = 48
    """Tokens at which the length has its full effect; `rollouts.max_tokens`, or less."""
    right_short: Number = 2.0
    """Reward of a right answer of length zero."""
    right_long: Number = 1.0
    """Reward of a right answer of `longest` tokens or more."""
    wrong_short: Number = -10.0
    """Reward of a wrong answer of length zero."""
    wrong_long: Number = 0.0
    """Reward of a wrong answer of `longest` tokens or more."""
    cut: Number = -10.0
    """Reward of a completion that did not end."""

    def __call__(self, resources: RunResources, rollouts: Sequence[Rollout]) -> Tensor:
        """Return values between the smallest and the largest of the five rewards that are set, [completions]."""
        return torch.tensor([self._value(rollout) for rollout in rollouts])

    def _value(self, rollout: Rollout) -> float:
        if not rollout.finished:
            return self.cut
        short, long = (self.right_short, self.right_long) if solves(rollout) else (self.wrong_short, self.wrong_long)
        return half_cosine(rollout.written_tokens, self.longest, short, long)

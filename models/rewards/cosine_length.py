"""A verdict that length bends: short is better where it is right and worse where it is wrong (paper 92, 2502.03373).

    value = long + (short - long) (1 + cos(pi length / longest)) / 2      short, long: of right answers, of wrong ones
    value = cut                                                           of one that did not end

Half a cosine is flat at both ends: what is very short, or nearly too long, is not pushed further. A wrong answer that
was long has at least tried, and a policy that cannot solve a problem yet is drawn to think longer; who solves it is
drawn to think no longer than it takes. So a length settles, where a plain verdict lets it drift.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from models.bounds import Number, Positive
from models.loop.rollout import Rollout
from models.loop.slots import Reward
from models.loop.world import World
from models.parts import part
from models.rewards.exact_answer import solves


def half_cosine(length: int, longest: int, short: float, long: float) -> float:
    """From `short` at length 0 to `long` at `longest` and beyond, along half a cosine."""
    return long + (short - long) * (1.0 + math.cos(math.pi * min(1.0, length / longest))) / 2.0


@part("cosine_length")
class CosineLength(Reward):
    """The verifier's verdict, scaled by how many tokens the policy wrote. Stands in place of `exact_answer`."""

    needs_answers = True
    longest: Positive = 48
    """Tokens at which length has its full effect; `rollouts.max_tokens`, or less."""
    right_short: Number = 2.0
    """Of a right answer of no length."""
    right_long: Number = 1.0
    """Of a right answer of `longest` tokens or more."""
    wrong_short: Number = -10.0
    """Of a wrong answer of no length."""
    wrong_long: Number = 0.0
    """Of a wrong answer of `longest` tokens or more."""
    cut: Number = -10.0
    """Of a completion that did not end."""

    def __call__(self, world: World, rollouts: Sequence[Rollout]) -> Tensor:
        """Values between the five that are set, [completions]."""
        return torch.tensor([self._value(rollout) for rollout in rollouts])

    def _value(self, rollout: Rollout) -> float:
        if not rollout.finished:
            return self.cut
        short, long = (self.right_short, self.right_long) if solves(rollout) else (self.wrong_short, self.wrong_long)
        return half_cosine(rollout.written_tokens, self.longest, short, long)

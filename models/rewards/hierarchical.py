"""Form, then the answer, then tools that work together (Tool-Star, paper 276, arXiv 2505.16410).

    -1            the episode did not end with an answer
     0            it ended with a wrong one
     1            with the right one
     1 + bonus    with the right one, after calls of two tools or more that were answered

A bonus is for right answers alone: what is rewarded is that tools help one another, not that they are called.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from pydantic import NonNegativeFloat
from torch import Tensor

from models.episodes.calls import read_call
from models.loop.rollout import Rollout
from models.loop.slots import Reward
from models.loop.world import World
from models.parts import part
from models.rewards.exact_answer import solves
from models.text.answers import extract_answer


@part("hierarchical")
class Hierarchical(Reward):
    """Right answers, and a bonus where several tools led to them."""

    needs_answers = True
    tools: tuple[str, ...] = ("search", "calculator")
    """Names of the tools whose collaboration counts."""
    bonus: NonNegativeFloat = 0.1
    """What it is worth."""
    malformed: NonNegativeFloat = 1.0
    """What an episode without an answer loses."""

    def __call__(self, world: World, rollouts: Sequence[Rollout]) -> Tensor:
        """Values in [-malformed, 1 + bonus], [completions]."""
        return torch.tensor([self._value(rollout) for rollout in rollouts])

    def _value(self, rollout: Rollout) -> float:
        if not rollout.finished or extract_answer(rollout.text) is None:
            return -self.malformed
        if not solves(rollout):
            return 0.0
        calls = [(read_call(turn.said, self.tools), turn.heard) for turn in rollout.turns]
        answered = {call.tool for call, heard in calls if call is not None and not heard.startswith("error:")}
        # a call in tags is read whatever its name: other tools, and such as there are none of, are not asked for
        return 1.0 + self.bonus * (len(answered.intersection(self.tools)) > 1)

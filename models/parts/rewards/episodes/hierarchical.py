"""Hierarchical reward: form, then the answer, then collaboration of tools (Tool-Star, paper 276, arXiv 2505.16410).

    -1            the episode did not end with an answer
     0            it ended with a wrong one
     1            it ended with the right one
     1 + bonus    it ended with the right one, after successful calls of two tools or more

Only right answers get the bonus: it rewards tools that help one another, not the calls themselves.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from pydantic import NonNegativeFloat
from torch import Tensor

from models.agents.play.calls import read_call
from models.answers.answers import extract_answer
from models.answers.exact import solves
from models.method.registry import part
from models.method.resources import RunResources
from models.method.reward import Reward
from models.method.rollout import Rollout


@part("hierarchical")
class Hierarchical(Reward):
    """One for a right answer, more if several tools led to it; zero for a wrong one, `-malformed` for none."""

    needs_answers = True
    tools: tuple[str, ...] = ("search", "calculator")
    """Names of the tools whose collaboration counts."""
    bonus: NonNegativeFloat = 0.1
    """Additional reward for collaboration."""
    malformed: NonNegativeFloat = 1.0
    """Cost of an episode without an answer."""

    def __call__(self, resources: RunResources, rollouts: Sequence[Rollout]) -> Tensor:
        """Return values in [-malformed, 1 + bonus], [completions]."""
        return torch.tensor([self._value(rollout) for rollout in rollouts])

    def _value(self, rollout: Rollout) -> float:
        if not rollout.finished or extract_answer(rollout.text) is None:
            return -self.malformed
        if not solves(rollout):
            return 0.0
        calls = [(read_call(turn.text, self.tools), turn.response) for turn in rollout.episode.turns]
        successful = {call.tool for call, response in calls if call is not None and not response.startswith("error:")}
        # a call in tags is read whatever its name, so other and unknown tools are filtered out here
        return 1.0 + self.bonus * (len(successful.intersection(self.tools)) > 1)

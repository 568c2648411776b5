"""Counts of cognitive behaviours in the policy's words, by rules (Four Habits, paper 96, arXiv 2503.01307).

    verification     a result is stated and judged        3*8+5=29 no
    backtracking     a line of attack is given up         no, wrong, instead
    subgoals         a step towards the target            first 3+5=8
    backward         a step back from the target          goal 64-8=56

A line counts once for each behaviour that it shows. The paper counts behaviours with a language model. With weight 0,
the count is a metric of every round: the policy is not trained to show behaviours, but their effect is seen.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Literal

import torch
from torch import Tensor

from models.method.registry import part
from models.method.resources import RunResources
from models.method.reward import Reward
from models.method.rollout import Rollout

Behaviour = Literal["verification", "backtracking", "subgoals", "backward"]

RULES: Mapping[Behaviour, re.Pattern[str]] = {
    "verification": re.compile(r"=\s*-?[\d./]+\W+(?:no|not|yes|right|wrong)\b|\b(?:check|verif)", re.IGNORECASE),
    "backtracking": re.compile(r"\b(?:no|not|wrong|instead|wait|again|another way)\b", re.IGNORECASE),
    "subgoals": re.compile(r"^\W*(?:first|then|next|step)\b", re.IGNORECASE),
    "backward": re.compile(r"\b(?:goal|need|backwards?)\b", re.IGNORECASE),
}
"""Behaviour -> pattern of a line that shows it."""


@part("behaviours")
class Behaviours(Reward):
    """Number of lines that show a behaviour."""

    of: Literal["all", Behaviour] = "all"
    """Behaviour that is counted; all: the sum of the counts of all four."""

    def __call__(self, resources: RunResources, rollouts: Sequence[Rollout]) -> Tensor:
        """Return the counts, [completions]."""
        return torch.tensor([float(self._count(rollout)) for rollout in rollouts])

    def _count(self, rollout: Rollout) -> int:
        """Count the lines of the policy's turns that show the behaviour; what an environment wrote is not read."""
        texts = [turn.text for turn in rollout.episode.turns] or [rollout.text]
        counts = behaviours_in("\n".join(texts))
        return sum(counts.values()) if self.of == "all" else counts[self.of]


def behaviours_in(text: str) -> dict[Behaviour, int]:
    """Return behaviour -> number of lines of a text that show it."""
    lines = text.splitlines()
    return {name: sum(rule.search(line) is not None for line in lines) for name, rule in RULES.items()}
